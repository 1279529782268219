package underlay

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"sluice/uplink"
	"sluice/uplink/tcp"
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
	// outer is what a tunnel adds to a packet: IPv6, UDP and WireGuard's header.
	outer = 80
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
		if err == nil {
			wait, told = tunnelRetryFirst, ""
			if check == nil {
				check = time.After(renew)
			}
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

// applyTunnels gives every uplink a tunnel, as soon as it is known where to. A
// link that is down for a moment keeps its tunnel, and an association its address.
func (u *Underlay) applyTunnels(ctx context.Context) error {
	var uplinks []tunnel.Uplink
	var endpoint netip.Addr
	sizes := map[string]int{}
	u.mu.Lock()
	for _, p := range u.opt.Monitor.Paths() {
		if w := u.ways[p.Name]; w != nil {
			if !w.isSized() {
				continue // an association would keep to a wrong size
			}
			if w.remote.IsValid() && !endpoint.IsValid() {
				endpoint = w.remote.Addr()
			}
			sizes[p.Name] = w.mtu - outer
		}
		if p.Index != 0 {
			uplinks = append(uplinks, tunnel.Uplink{Name: p.Name, Mark: p.Mark, MTU: p.MTU})
		}
	}
	u.mu.Unlock()
	if !endpoint.IsValid() {
		return nil // what is there stays
	}
	ctx, cancel := context.WithTimeout(ctx, applyWithin)
	defer cancel()
	up, err := u.opt.Tunnels.Apply(ctx, uplinks, endpoint)
	for i, t := range up {
		size, known := sizes[t.Path]
		if !known || size == t.MTU {
			continue
		}
		if err := u.opt.Tunnels.SetMTU(t.Path, size); err != nil {
			u.opt.Logger.Warn("tunnel keeps a packet size that does not fit its path", "path", t.Path, "error", err)
			continue
		}
		up[i].MTU = size
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
		if c, err = u.dialOne(ctx, p.Name, askWithin); err != nil {
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

func (u *Underlay) dialOne(ctx context.Context, path string, within time.Duration) (uplink.Carrier, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	opt, err := u.tcpOptions(ctx, path)
	if err != nil {
		return nil, err
	}
	opt.Address = u.opt.Collectors(path)[0]
	return tcp.Dial(ctx, opt)
}
