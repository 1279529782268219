// Package underlay prepares what carriers go over: for each uplink the
// collector's address as that uplink sees it, a prober, the packet size that
// passes, and, unless the links are used bare, a tunnel. It dials carriers over
// them, and tells uplink/steer what there is.
//
// One goroutine a path (way.go) resolves, probes and measures for as long as the
// path stays as it is; one more keeps the tunnels (tunnels.go).
package underlay

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"sluice/uplink/paths"
	"sluice/uplink/steer"
	"sluice/uplink/tunnel"
)

// The kinds of underlay, as the status names them.
const (
	Tunnel = "tunnel"
	Bare   = "bare"
)

// Options configures an Underlay. All fields without a note are required.
type Options struct {
	Monitor *paths.Monitor
	// Tunnels gives each path a tunnel; nil for the bare links.
	Tunnels *tunnel.Client
	// Collectors returns the collector's addresses by a path, in order of
	// preference, as "host:port"; at least one. Probes, tunnels and SCTP go to
	// the first.
	Collectors func(path string) []string
	TLS        *tls.Config // the gateway's certificate, and the collector's authorities
	Logger     *slog.Logger
}

// Underlay keeps what carriers go over.
type Underlay struct {
	opt     Options
	changed chan struct{}
	retune  chan struct{} // wakes the tunnels' goroutine

	mu      sync.Mutex // guards what follows
	ways    map[string]*way
	remotes map[string]netip.Addr // of the collector, as last known, by path
	tunnels []tunnel.Tunnel
}

// New returns an Underlay that does nothing until Run.
func New(opt Options) *Underlay {
	return &Underlay{opt: opt, changed: make(chan struct{}, 1), retune: make(chan struct{}, 1),
		ways: make(map[string]*way), remotes: make(map[string]netip.Addr)}
}

// Run follows the monitor's paths until ctx ends. It must be called once, and is
// the one reader of the monitor's Changed.
func (u *Underlay) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	if u.opt.Tunnels != nil {
		wg.Go(func() { u.keepTunnels(ctx) })
	}
	for {
		u.follow(ctx, &wg)
		select {
		case <-u.opt.Monitor.Changed():
		case <-ctx.Done():
			u.mu.Lock()
			defer u.mu.Unlock()
			for _, w := range u.ways {
				w.cancel()
			}
			return nil
		}
	}
}

// follow starts a way for each path that is up, and ends those of paths that are
// not what they were.
func (u *Underlay) follow(ctx context.Context, wg *sync.WaitGroup) {
	now := u.opt.Monitor.Paths()
	u.mu.Lock()
	for name, w := range u.ways {
		if !slices.ContainsFunc(now, w.serves) {
			w.cancel()
			delete(u.ways, name)
		}
	}
	for _, p := range now {
		if p.Up && u.ways[p.Name] == nil {
			wayCtx, cancel := context.WithCancel(ctx)
			w := newWay(u, p, cancel)
			u.ways[p.Name] = w
			wg.Go(func() { w.run(wayCtx) })
		}
	}
	u.mu.Unlock()
	u.tell()
}

// tell has everybody look at the paths again.
func (u *Underlay) tell() {
	for _, c := range []chan struct{}{u.changed, u.retune} {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// Changed yields after Paths has changed, once for any number of changes.
func (u *Underlay) Changed() <-chan struct{} { return u.changed }

// Kind is what SCTP goes over.
func (u *Underlay) Kind() string {
	if u.opt.Tunnels != nil {
		return Tunnel
	}
	return Bare
}

// Paths returns the uplinks as they are now, in order of preference.
func (u *Underlay) Paths() []steer.Path {
	now := u.opt.Monitor.Paths()
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.describe(now)
}

// describe is what carriers can go over. The caller holds mu.
func (u *Underlay) describe(now []paths.Path) []steer.Path {
	var remotes []netip.Addr // that an earlier path has
	out := make([]steer.Path, len(now))
	for i, p := range now {
		out[i] = steer.Path{Name: p.Name, Up: p.Up, Reason: p.Reason, Metered: p.Metered, Preference: p.Preference}
		w := u.ways[p.Name]
		if w == nil || !w.remote.IsValid() {
			continue
		}
		if w.prober != nil {
			out[i].Prober = w.prober
		}
		if u.opt.Tunnels != nil {
			for _, t := range u.tunnels {
				if t.Path == p.Name {
					out[i].SCTP = steer.PathAddress{Path: p.Name, Local: t.Local, Remote: netip.AddrPortFrom(t.Remote, w.remote.Port())}
				}
			}
			continue
		}
		// A path is an address of the peer: one that has the same as another is
		// not a path of the association.
		if a := w.local(); a.IsValid() && !slices.Contains(remotes, w.remote.Addr()) {
			remotes = append(remotes, w.remote.Addr())
			out[i].SCTP = steer.PathAddress{Path: p.Name, Local: a, Remote: w.remote}
		}
	}
	return out
}

// way returns the way of a path, nil if it has none.
func (u *Underlay) way(path string) *way {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.ways[path]
}

// split is net.SplitHostPort for what the configuration has checked.
func split(address string) (host string, port uint16) {
	host, p, err := net.SplitHostPort(address)
	if err != nil {
		return address, 0
	}
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil {
		return host, 0
	}
	return host, uint16(n)
}

// pause waits, and reports false if ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
