package collector

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"sluice/reading"
	"sluice/uplink"
)

// Stats is the collector at one instant.
type Stats struct {
	Sessions  []SessionStats // by gateway
	Conflicts uint64         // another collector had written
	Rejected  uint64         // carriers that did not join
	Memory    int            // bytes received and not durable yet
}

// SessionStats is a gateway's session at one instant.
type SessionStats struct {
	Gateway  string
	Epoch    uint64
	LastSeen time.Time
	Carriers []CarrierStats // none while the gateway is away
	Lanes    [reading.Lanes]LaneStats
}

// CarrierStats is a carrier of a session.
type CarrierStats struct {
	Remote string
	uplink.Info
}

// LaneStats is one lane of a session, counted since the collector started.
type LaneStats struct {
	Durable    uint64 // the last sequence number that all outputs hold
	Lag        uint64 // sequence numbers received in order and not durable yet
	Held       int    // frames that wait for an earlier one
	Readings   uint64
	Duplicates uint64 // readings that came again
	Unreadable uint64 // readings in segments that could not be decoded
	Fault      string // why an output does not take readings; empty if all do
}

// Stats returns the collector's state. It may be called at any time.
func (c *Collector) Stats() Stats {
	c.mu.Lock()
	sessions := make([]*session, 0, len(c.sessions))
	for _, s := range c.sessions {
		sessions = append(sessions, s)
	}
	c.mu.Unlock()
	slices.SortFunc(sessions, func(a, b *session) int { return cmp.Compare(a.gateway, b.gateway) })
	st := Stats{Conflicts: c.conflicts.Load(), Rejected: c.rejected.Load(), Memory: c.memory.used()}
	for _, s := range sessions {
		st.Sessions = append(st.Sessions, s.stats())
	}
	return st
}

func (s *session) stats() SessionStats {
	st := SessionStats{Gateway: s.gateway, Epoch: s.epoch, LastSeen: time.Unix(0, s.lastSeen.Load())}
	s.mu.Lock()
	links := slices.Clone(s.links)
	s.mu.Unlock()
	for _, l := range links {
		st.Carriers = append(st.Carriers, CarrierStats{Remote: l.carrier.RemoteAddr().String(), Info: l.carrier.Info()})
	}
	for i, stream := range s.streams {
		st.Lanes[i] = stream.stats()
	}
	return st
}

func (s *stream) stats() LaneStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return LaneStats{
		Durable: s.durable, Lag: s.last - s.durable, Held: len(s.held),
		Readings: s.readings, Duplicates: s.duplicates, Unreadable: s.unreadable,
		Fault: strings.Join(slices.DeleteFunc(slices.Clone(s.faults), func(f string) bool { return f == "" }), "; "),
	}
}
