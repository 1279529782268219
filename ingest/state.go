package ingest

import (
	"cmp"
	"slices"
	"sync"

	"sluice/reading"
)

// State is what devices and bridges last said of themselves.
type State struct {
	Devices []Device // ordered by name
	Bridges []Bridge // ordered by base topic
}

// Device says whether a device can be reached.
type Device struct {
	Name   string
	Online bool
	Since  reading.Time // of the message that changed it
}

// Bridge is what a Zigbee2MQTT instance says of itself.
type Bridge struct {
	Base      string // its base topic
	Online    bool
	Version   string
	Devices   int // how many devices it knows
	Errors    uint64
	LastError string
	Seen      reading.Time // of its last message
}

// What the state remembers is bounded: beyond these, what is new is not kept.
const (
	maxDevices = 4096
	maxBridges = 64
)

// stateKeeper collects State.
type stateKeeper struct {
	mu      sync.Mutex // guards both
	devices map[string]Device
	bridges map[string]Bridge
}

func (s *stateKeeper) device(name string, online bool, at reading.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, known := s.devices[name]
	if !known && len(s.devices) >= maxDevices || known && d.Online == online {
		return
	}
	s.devices[name] = Device{Name: name, Online: online, Since: at}
}

// bridge lets change note something about the bridge with the base topic.
func (s *stateKeeper) bridge(base string, at reading.Time, change func(*Bridge)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, known := s.bridges[base]
	if !known && len(s.bridges) >= maxBridges {
		return
	}
	b.Base, b.Seen = base, at
	change(&b)
	s.bridges[base] = b
}

func (s *stateKeeper) snapshot() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	var st State
	for _, d := range s.devices {
		st.Devices = append(st.Devices, d)
	}
	for _, b := range s.bridges {
		st.Bridges = append(st.Bridges, b)
	}
	slices.SortFunc(st.Devices, func(a, b Device) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(st.Bridges, func(a, b Bridge) int { return cmp.Compare(a.Base, b.Base) })
	return st
}
