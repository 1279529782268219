package underlay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"syscall"
	"time"

	"sluice/uplink/paths"
	"sluice/uplink/probe"
)

const (
	retryFirst = time.Second
	retryMost  = 30 * time.Second
	// lookAgain is how often a silent collector's name is looked up.
	lookAgain = time.Minute
	// silentProbes without an answer are a silent collector.
	silentProbes = 10
	// firstPace is that of the first probes; steer sets its own.
	firstPace = 200 * time.Millisecond

	// MTUSafe passes wherever IPv6 would (RFC 8200, section 5), and on any link
	// that people have: packets are no larger until it is known that they pass.
	MTUSafe    = 1280
	sizeWithin = 5 * time.Second // to find out
	sizeRetry  = time.Minute     // after nothing was answered
)

// way is one path for as long as it keeps its interface and addresses.
type way struct {
	u      *Underlay
	path   paths.Path
	cancel context.CancelFunc
	sized  chan struct{} // closed when mtu is known, or cannot be for now

	// guarded by Underlay.mu
	remote netip.AddrPort // of the collector, by this path; invalid until resolved
	prober *probe.Prober  // nil while there is none
	mtu    int            // largest packet that passes both ways, with its IP header
}

func newWay(u *Underlay, p paths.Path, cancel context.CancelFunc) *way {
	return &way{u: u, path: p, cancel: cancel, sized: make(chan struct{}), mtu: min(p.MTU, MTUSafe)}
}

// serves says whether p is still the path that the way is for.
func (w *way) serves(p paths.Path) bool {
	return p.Up && p.Name == w.path.Name && p.Index == w.path.Index && p.MTU == w.path.MTU &&
		reflect.DeepEqual(p.Addrs, w.path.Addrs) && reflect.DeepEqual(p.Gateways, w.path.Gateways)
}

// local is the path's address that reaches the collector. The caller holds mu.
func (w *way) local() netip.Addr {
	for _, p := range w.path.Addrs {
		if p.Addr().Is4() == w.remote.Addr().Is4() {
			return p.Addr()
		}
	}
	return netip.Addr{}
}

// run keeps a prober on the path until ctx ends.
func (w *way) run(ctx context.Context) {
	log := w.u.opt.Logger.With("path", w.path.Name)
	wait := retryFirst
	told := ""
	for {
		began := time.Now()
		err := w.probe(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil && err.Error() != told {
			told = err.Error()
			log.Warn("path is not probed; attempts go on", "error", err)
		}
		if time.Since(began) > retryMost {
			wait = retryFirst
		}
		if !pause(ctx, wait) {
			return
		}
		wait = min(2*wait, retryMost)
	}
}

// probe resolves the collector and probes it until ctx ends or its address
// changes.
func (w *way) probe(ctx context.Context) error {
	remote, err := w.resolve(ctx)
	if err != nil {
		return err
	}
	if w.u.opt.Tunnels == nil {
		// SCTP's packets are routed by where they go, not by their socket.
		if err := w.u.opt.Monitor.RouteVia(w.path.Name, []netip.Addr{remote.Addr()}); err != nil {
			return fmt.Errorf("route to %s: %w", remote.Addr(), err)
		}
	}
	control := w.u.opt.Monitor.Control(w.path.Name)
	network := "udp4"
	if remote.Addr().Is6() {
		network = "udp6"
	}
	listen := net.ListenConfig{Control: func(network, address string, c syscall.RawConn) error { return control(ctx, network, address, c) }}
	conn, err := listen.ListenPacket(ctx, network, ":0")
	if err != nil {
		return fmt.Errorf("open probe socket: %w", err)
	}
	defer conn.Close()
	prober, err := probe.New(probe.Options{Conn: conn, Remote: remote, Interval: firstPace})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- prober.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	w.set(remote, prober)
	defer w.set(netip.AddrPort{}, nil)

	size := time.NewTimer(0)
	defer size.Stop()
	look := time.NewTicker(lookAgain)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			ended <- nil // for the wait above
			return fmt.Errorf("probe %s: %w", remote, err)
		case <-size.C:
			if !w.measure(ctx, prober) {
				size.Reset(sizeRetry)
			}
		case <-look.C:
			if prober.Stats().Unanswered < silentProbes {
				continue
			}
			if now, err := w.resolve(ctx); err == nil && now != remote {
				return nil // and begin with the new one
			}
		}
	}
}

// resolve asks over the path where the collector is.
func (w *way) resolve(ctx context.Context) (netip.AddrPort, error) {
	host, port := split(w.u.opt.Collectors(w.path.Name)[0])
	addrs, err := w.u.opt.Monitor.LookupNetIP(ctx, w.path.Name, host)
	if err != nil {
		return netip.AddrPort{}, err
	}
	for _, a := range addrs {
		for _, p := range w.path.Addrs {
			if p.Addr().Is4() == a.Unmap().Is4() {
				return netip.AddrPortFrom(a.Unmap(), port), nil
			}
		}
	}
	return netip.AddrPort{}, fmt.Errorf("look up %s over %s: no address of a family that the path has", host, w.path.Name)
}

func (w *way) set(remote netip.AddrPort, prober *probe.Prober) {
	w.u.mu.Lock()
	w.remote, w.prober = remote, prober
	if remote.IsValid() {
		w.u.remotes[w.path.Name] = remote.Addr()
	}
	w.u.mu.Unlock()
	w.u.tell()
}

// measure finds out which packets pass, and reports whether it did.
func (w *way) measure(ctx context.Context, prober *probe.Prober) bool {
	ctx, cancel := context.WithTimeout(ctx, sizeWithin)
	defer cancel()
	largest := MTUSafe
	fits, err := prober.Fits(ctx, w.path.MTU)
	if err == nil && fits {
		largest = w.path.MTU
	}
	w.u.mu.Lock()
	if err == nil {
		w.mtu = largest
	}
	if !w.isSized() {
		close(w.sized)
	}
	w.u.mu.Unlock()
	w.u.tell()
	if err != nil {
		if !errors.Is(err, probe.ErrSilent) && ctx.Err() == nil {
			w.u.opt.Logger.Warn("packet size of path is not known", "path", w.path.Name, "error", err)
		}
		return false
	}
	if !fits && w.path.MTU > MTUSafe {
		w.u.opt.Logger.Info("large packets are lost without a word: smaller ones are sent", "path", w.path.Name, "link", w.path.MTU, "bytes", largest)
	}
	return true
}

func (w *way) isSized() bool {
	select {
	case <-w.sized:
		return true
	default:
		return false
	}
}
