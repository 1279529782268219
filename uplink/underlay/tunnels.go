package underlay

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"sluice/uplink"
	"sluice/uplink/paths"
	"sluice/uplink/tunnel"
	"sluice/uplink/wire"
)

const (
	tunnelRetryFirst = 5 * time.Second
	tunnelRetryMost  = 10 * time.Minute
	// renewFirst is how long all tunnels may stay silent over paths that are
	// probed well, before the lease is asked for again; it doubles.
	renewFirst = 30 * time.Second
	askWithin  = 8 * time.Second
	// applyWithin bounds the asking by all paths in turn.
	applyWithin = 40 * time.Second
)

// keepTunnels applies the paths to the tunnels until ctx ends.
func (u *Underlay) keepTunnels(ctx context.Context) {
	wait, renew := tunnelRetryFirst, renewFirst
	var retry, check <-chan time.Time
	told := ""
	for {
		select {
		case <-u.retune:
		case <-retry:
		case <-check:
			if u.silent(ctx) {
				asking, cancel := context.WithTimeout(ctx, applyWithin)
				_, err := u.opt.Tunnels.Renew(asking)
				cancel()
				if err != nil {
					u.opt.Logger.Warn("tunnels stay silent, and the lease is not renewed", "error", err)
				}
				renew = min(2*renew, tunnelRetryMost)
			} else {
				renew = renewFirst
			}
			check = time.After(renew)
			continue
		case <-ctx.Done():
			return
		}
		err := u.applyTunnels(ctx)
		retry = nil
		if check == nil {
			check = time.After(renew)
		}
		if err == nil {
			wait, told = tunnelRetryFirst, ""
			continue
		}
		if err.Error() != told {
			told = err.Error()
			u.opt.Logger.Warn("not all tunnels are up; attempts go on", "error", err)
		}
		var refused *tunnel.RefusedError
		if errors.As(err, &refused) {
			wait = max(wait, min(refused.RetryAfter, tunnelRetryMost))
		}
		retry = time.After(wait)
		wait = min(2*wait, tunnelRetryMost)
	}
}

// applyTunnels gives every uplink a tunnel, as soon as it is known where to.
func (u *Underlay) applyTunnels(ctx context.Context) error {
	u.mu.Lock()
	w := u.wanted(u.opt.Monitor.Paths())
	u.mu.Unlock()
	if !w.endpoint.IsValid() {
		return nil // what is there stays
	}
	ctx, cancel := context.WithTimeout(ctx, applyWithin)
	defer cancel()
	up, err := u.opt.Tunnels.Apply(ctx, w.uplinks, w.endpoint)
	for _, t := range up {
		size, known := w.sizes[t.Path]
		if !known || size == t.MTU {
			continue
		}
		if err := u.opt.Tunnels.SetMTU(t.Path, size); err != nil {
			u.opt.Logger.Warn("tunnel keeps a packet size that does not fit its path", "path", t.Path, "error", err)
		}
	}
	u.mu.Lock()
	changed := !slices.EqualFunc(up, u.tunnels, func(a, b tunnel.Tunnel) bool {
		return a.Path == b.Path && a.Local == b.Local && a.Remote == b.Remote
	})
	u.tunnels = up
	u.mu.Unlock()
	if changed {
		select {
		case u.changed <- struct{}{}:
		default:
		}
	}
	return err
}

// wanted is what the tunnels should be.
type wanted struct {
	uplinks  []tunnel.Uplink
	endpoint netip.Addr     // of the collector where an uplink knows none; invalid while nobody does
	sizes    map[string]int // of inner packets, by path, where that is known
}

// wanted says which of the paths get a tunnel. A link that is down for a moment, or
// has another address, keeps its tunnel, and an association its address; one that
// has no tunnel yet waits until its packet size is known, since an association
// would keep to a wrong one. Of more links than a gateway may have tunnels, those
// that are up come first. The caller holds mu.
func (u *Underlay) wanted(now []paths.Path) wanted {
	out := wanted{sizes: map[string]int{}}
	var down []string
	for _, p := range now {
		if p.Index == 0 {
			continue
		}
		w := u.ways[p.Name]
		sized := w != nil && w.isSized()
		if !sized && !u.hasTunnel(p.Name) {
			continue
		}
		if sized {
			out.sizes[p.Name] = min(w.mtu-tunnel.Overhead, tunnel.MaxMTU)
		}
		switch {
		case w == nil:
			down = append(down, p.Name)
		case w.remote.IsValid() && !out.endpoint.IsValid():
			out.endpoint = w.remote.Addr()
		}
		out.uplinks = append(out.uplinks, tunnel.Uplink{Name: p.Name, Mark: p.Mark, MTU: p.MTU, Endpoint: u.remotes[p.Name]})
	}
	for len(out.uplinks) > wire.MaxTunnels {
		surplus := out.uplinks[len(out.uplinks)-1].Name
		if n := len(down); n > 0 {
			surplus, down = down[n-1], down[:n-1]
		}
		out.uplinks = slices.DeleteFunc(out.uplinks, func(t tunnel.Uplink) bool { return t.Name == surplus })
	}
	return out
}

func (u *Underlay) hasTunnel(path string) bool {
	return slices.ContainsFunc(u.tunnels, func(t tunnel.Tunnel) bool { return t.Path == path })
}

// silent says whether no tunnel has shaken hands lately although the collector
// answers probes.
func (u *Underlay) silent(ctx context.Context) bool {
	states, err := u.opt.Tunnels.State(ctx)
	if err != nil || len(states) == 0 {
		return false
	}
	const lately = 4 * time.Minute // twice as long as a handshake holds
	for _, s := range states {
		if time.Since(s.Handshake) < lately {
			return false
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, w := range u.ways {
		if w.prober == nil {
			continue
		}
		if st := w.prober.Stats(); st.Unanswered == 0 && !st.Last.IsZero() {
			return true
		}
	}
	return false
}

// Ask asks the collector for tunnels over the first path that works. It is what
// tunnel.Options wants.
func (u *Underlay) Ask(ctx context.Context, req wire.TunnelRequest) (wire.TunnelReply, error) {
	err := error(errNoPath)
	for _, p := range u.opt.Monitor.Paths() {
		if u.way(p.Name) == nil {
			continue
		}
		var c uplink.Carrier
		dialling, cancel := context.WithTimeout(ctx, askWithin)
		c, err = u.DialTCP(dialling, p.Name, u.opt.Collectors(p.Name)[0])
		cancel()
		if err != nil {
			continue
		}
		reply, failed := tunnel.Ask(ctx, c, req)
		var refused *tunnel.RefusedError
		if failed == nil || errors.As(failed, &refused) {
			return reply, failed
		}
		err = failed
	}
	return wire.TunnelReply{}, err
}
