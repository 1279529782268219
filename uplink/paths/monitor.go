package paths

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"syscall"
	"time"
)

const (
	settle       = 50 * time.Millisecond // changes come in bunches: all within are taken at once
	pollInterval = 30 * time.Second      // should the kernel not have told
	applyTimeout = 5 * time.Second
)

// kernel is the machine's links, routes and rules. Its calls end within seconds.
// Only the goroutine in Run makes them.
type kernel interface {
	// changed yields when something may have, as often as it likes.
	changed() <-chan struct{}
	// read returns what others have set up, and what is ours: of this process or
	// of one before it. IPv6 says whether the kernel has that.
	read() (s snapshot, ours installed, ipv6 bool, err error)
	// apply makes what is ours from have into want, as far as it can.
	apply(have, want installed) error
	// relax switches the reverse-path filter of the named interfaces off.
	relax(paths []Path) error
	// close restores the filters and releases everything.
	close() error
}

// Monitor follows the uplinks.
type Monitor struct {
	opt      Options
	kernel   kernel
	requests chan request
	changed  chan struct{}
	ended    chan struct{} // closed when Run has returned

	mu    sync.Mutex // guards what follows
	paths []Path     // replaced, never changed
}

// request asks Run for the rules of RouteVia.
type request struct {
	path  string
	peers []netip.Addr
	done  chan error // has room for one
}

// New returns a Monitor that changes nothing until Run. It needs Linux with policy
// routing, and CAP_NET_ADMIN.
func New(opt Options) (*Monitor, error) {
	opt, err := opt.normalise()
	if err != nil {
		return nil, err
	}
	k, err := openKernel(opt)
	if err != nil {
		return nil, fmt.Errorf("uplinks: %w", err)
	}
	return newMonitor(opt, k), nil
}

func newMonitor(opt Options, k kernel) *Monitor {
	return &Monitor{opt: opt, kernel: k, requests: make(chan request), changed: make(chan struct{}, 1), ended: make(chan struct{})}
}

// Run installs the tables and rules of all uplinks, follows what changes, and
// removes them when ctx ends. What a process before it has left behind is taken
// over or removed. Run must be called once.
func (m *Monitor) Run(ctx context.Context) (err error) {
	defer close(m.ended)
	p := &planner{patterns: m.opt.Patterns, mark: m.opt.Mark, table: m.opt.Table, priority: m.opt.Priority, peers: map[string][]netip.Addr{}}
	defer func() {
		m.publish(nil)
		if left := errors.Join(m.remove(), m.kernel.close()); left != nil {
			err = fmt.Errorf("uplinks: remove routes and rules: %w", left)
		}
	}()
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	later := time.NewTimer(0) // the first time at once
	defer later.Stop()
	waiting := true  // later will tell
	var failures int // one after the other
	var said string
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.kernel.changed():
			if !waiting {
				later.Reset(settle)
				waiting = true
			}
			continue
		case r := <-m.requests:
			setPeers(p.peers, r.path, r.peers)
			err := m.sync(p)
			r.done <- err
			continue
		case <-poll.C:
		case <-later.C:
			waiting = false
		}
		err := m.sync(p)
		// What fails because something changed meanwhile works the next time, which
		// has then been asked for. What fails twice is worth a word, once.
		switch failures++; {
		case err == nil:
			failures, said = 0, ""
		case failures == 1:
			later.Reset(settle)
			waiting = true
		case err.Error() != said:
			said = err.Error()
			m.opt.Logger.Warn("uplink routes are not as they should be", "error", err)
		}
	}
}

// sync reads everything, installs what is missing, removes what is too much, and
// publishes the paths.
func (m *Monitor) sync(p *planner) error {
	s, have, ipv6, err := m.kernel.read()
	if err != nil {
		return err
	}
	p.ipv6 = ipv6
	paths, want := p.plan(s)
	err = errors.Join(m.kernel.relax(paths), m.kernel.apply(have, want))
	m.publish(paths)
	return err
}

// remove takes away all that is ours.
func (m *Monitor) remove() error {
	_, have, _, err := m.kernel.read()
	if err != nil {
		return err
	}
	return m.kernel.apply(have, installed{})
}

// publish makes paths known, and tells of it if they differ.
func (m *Monitor) publish(paths []Path) {
	m.mu.Lock()
	before := m.paths
	m.paths = paths
	m.mu.Unlock()
	if len(before) == len(paths) && (len(paths) == 0 || reflect.DeepEqual(before, paths)) {
		return
	}
	m.report(before, paths)
	select {
	case m.changed <- struct{}{}:
	default: // not yet taken
	}
}

// report logs the paths that are up or down for another reason than before.
func (m *Monitor) report(before, after []Path) {
	for _, path := range after {
		i := slices.IndexFunc(before, func(p Path) bool { return p.Name == path.Name })
		if i >= 0 && before[i].Reason == path.Reason && slices.Equal(before[i].Addrs, path.Addrs) {
			continue
		}
		if path.Up {
			m.opt.Logger.Info("uplink is up", "interface", path.Name, "addresses", fmt.Sprint(path.Addrs), "mark", fmt.Sprintf("%#x", path.Mark), "table", path.Table)
		} else {
			m.opt.Logger.Info("uplink is not usable", "interface", path.Name, "reason", path.Reason)
		}
	}
}

// Paths returns the uplinks in order of preference, once Run has installed their
// tables. Do not change what the slices in them hold.
func (m *Monitor) Paths() []Path {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.paths)
}

// Changed yields after Paths has changed, once for any number of changes that
// nobody has waited for. It is for one reader.
func (m *Monitor) Changed() <-chan struct{} { return m.changed }

// path returns one of Paths.
func (m *Monitor) path(name string) (Path, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := slices.IndexFunc(m.paths, func(p Path) bool { return p.Name == name }); i >= 0 && m.paths[i].Index != 0 {
		return m.paths[i], nil
	}
	return Path{}, ErrNoInterface
}

// Control returns what net.Dialer.ControlContext and the like call with each new
// socket: it ties the socket to the path's interface and marks it for the path's
// table. A socket stays tied to an interface that disappears, also when one of the
// same name comes back: open a new one then.
func (m *Monitor) Control(path string) func(ctx context.Context, network, address string, c syscall.RawConn) error {
	return func(_ context.Context, _, _ string, c syscall.RawConn) error {
		p, err := m.path(path)
		if err == nil {
			var set error
			if err = c.Control(func(fd uintptr) { set = bind(fd, p.Name, p.Mark) }); err == nil {
				err = set
			}
		}
		if err != nil {
			return fmt.Errorf("bind socket to %s: %w", path, err)
		}
		return nil
	}
}

// RouteVia has everything to these peers leave by the path, except from sockets
// that are bound to another; no peers is none any more. A peer goes by one path,
// that of the latest call. It is for SCTP on the bare links, which looks a peer's
// route up without a source or a mark. When it returns nil, the rules are
// installed; the path itself need not be up.
func (m *Monitor) RouteVia(path string, peers []netip.Addr) error {
	if preference(m.opt.Patterns, path) < 0 {
		return fmt.Errorf("route peers via %s: no pattern names such an interface", path)
	}
	r := request{path: path, done: make(chan error, 1)}
	for _, peer := range peers {
		if !peer.IsValid() {
			return fmt.Errorf("route peers via %s: a peer without address", path)
		}
		r.peers = append(r.peers, peer.Unmap().WithZone(""))
	}
	timeout := time.NewTimer(applyTimeout)
	defer timeout.Stop()
	var err error
	select {
	case m.requests <- r:
		err = <-r.done
	case <-m.ended:
		err = errors.New("the monitor has ended")
	case <-timeout.C:
		err = errors.New("the monitor does not answer: see that it runs")
	}
	if err != nil {
		return fmt.Errorf("route peers via %s: %w", path, err)
	}
	return nil
}

// setPeers sets the peers of one path and takes them from the others.
func setPeers(all map[string][]netip.Addr, path string, peers []netip.Addr) {
	for other := range maps.Keys(all) {
		all[other] = slices.DeleteFunc(all[other], func(p netip.Addr) bool { return slices.Contains(peers, p) })
	}
	slices.SortFunc(peers, netip.Addr.Compare)
	all[path] = slices.Compact(peers)
}
