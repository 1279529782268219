package tunnel

import (
	"errors"
	"fmt"
	"sync"
)

// fakeBackend makes devices in memory, and writes down what it is asked for.
type fakeBackend struct {
	mu      sync.Mutex // guards what follows
	devices map[string]*fakeDevice
	taken   map[string]bool // by others
	calls   []string
	fails   error // of setPeers
}

func newFake() *fakeBackend {
	return &fakeBackend{devices: make(map[string]*fakeDevice), taken: make(map[string]bool)}
}

func (b *fakeBackend) note(format string, args ...any) {
	b.calls = append(b.calls, fmt.Sprintf(format, args...))
}

// said returns the calls since the last time.
func (b *fakeBackend) said() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.calls
	b.calls = nil
	return c
}

func (b *fakeBackend) sweep(ours func(string, key) bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, d := range b.devices {
		public, err := d.settings.private.public()
		if err != nil {
			return err
		}
		if ours(name, public) {
			b.note("sweep %s", name)
			delete(b.devices, name)
		}
	}
	return nil
}

func (b *fakeBackend) create(name string, s settings, peers []peer) (device, error) {
	b.mu.Lock()
	if b.taken[name] || b.devices[name] != nil {
		b.mu.Unlock()
		return nil, fmt.Errorf("make device %s: %w", name, errTaken)
	}
	d := &fakeDevice{backend: b, name: name, settings: s, held: make(map[key]peer)}
	b.devices[name] = d
	b.note("create %s mtu %d mark %d", name, s.mtu, s.mark)
	b.mu.Unlock()
	for _, p := range peers {
		d.held[p.public] = p
	}
	return d, nil
}

func (b *fakeBackend) close() error { return nil }

type fakeDevice struct {
	backend  *fakeBackend
	name     string
	settings settings
	held     map[key]peer // guarded by the backend's mu
}

func (d *fakeDevice) setPeers(set []peer, left []key) error {
	d.backend.mu.Lock()
	defer d.backend.mu.Unlock()
	if d.backend.fails != nil {
		return d.backend.fails
	}
	d.backend.note("peers of %s: %d set, %d removed", d.name, len(set), len(left))
	for _, k := range left {
		delete(d.held, k)
	}
	for _, p := range set {
		d.held[p.public] = p
	}
	return nil
}

func (d *fakeDevice) setMTU(mtu int) error {
	d.backend.mu.Lock()
	defer d.backend.mu.Unlock()
	d.backend.note("mtu of %s: %d", d.name, mtu)
	return nil
}

func (d *fakeDevice) peers() ([]peerState, error) {
	d.backend.mu.Lock()
	defer d.backend.mu.Unlock()
	if d.backend.devices[d.name] != d {
		return nil, errGone
	}
	var all []peerState
	for k := range d.held {
		all = append(all, peerState{public: k, sent: 1})
	}
	return all, nil
}

func (d *fakeDevice) close() error {
	d.backend.mu.Lock()
	defer d.backend.mu.Unlock()
	d.backend.note("remove %s", d.name)
	if d.backend.devices[d.name] == d {
		delete(d.backend.devices, d.name)
	}
	return nil
}

var errFake = errors.New("out of order")
