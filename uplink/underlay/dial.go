package underlay

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"sluice/uplink"
	"sluice/uplink/sctp"
	"sluice/uplink/steer"
	"sluice/uplink/tcp"
)

// sizeWait is how long a dial waits for the packet size that passes: what is
// dialled before goes with small packets for as long as it lives.
const sizeWait = 1500 * time.Millisecond

var errNoPath = errors.New("no path is up")

// DialTCP opens a connection by a path to a collector.
func (u *Underlay) DialTCP(ctx context.Context, path, collector string) (uplink.Carrier, error) {
	opt, err := u.tcpOptions(ctx, path)
	if err != nil {
		return nil, err
	}
	opt.Address = collector
	return tcp.Dial(ctx, opt)
}

func (u *Underlay) tcpOptions(ctx context.Context, path string) (tcp.Options, error) {
	mtu, err := u.mtu(ctx, path)
	if err != nil {
		return tcp.Options{}, err
	}
	return tcp.Options{
		TLS: u.opt.TLS, MTU: mtu, Control: u.opt.Monitor.Control(path),
		Resolve: func(ctx context.Context, host string) ([]netip.Addr, error) {
			return u.opt.Monitor.LookupNetIP(ctx, path, host)
		},
	}, nil
}

// mtu is the largest packet that passes by a path, as far as it is known.
func (u *Underlay) mtu(ctx context.Context, path string) (int, error) {
	w := u.way(path)
	if w == nil {
		return 0, fmt.Errorf("dial over %s: the path is not up", path)
	}
	select {
	case <-w.sized:
	case <-time.After(sizeWait):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return w.mtu, nil
}

// DialSCTP opens one association over all paths given.
func (u *Underlay) DialSCTP(ctx context.Context, addresses []steer.PathAddress) (steer.Association, error) {
	opt := sctp.Options{TLS: u.opt.TLS}
	for _, a := range addresses {
		opt.Local = append(opt.Local, a.Local)
		opt.Remote = append(opt.Remote, a.Remote)
		if u.opt.Tunnels == nil {
			mtu, err := u.mtu(ctx, a.Path)
			if err != nil {
				return nil, err
			}
			if opt.Tuning.MTU == 0 || mtu < opt.Tuning.MTU {
				opt.Tuning.MTU = mtu
			}
		}
	}
	if opt.TLS.ServerName == "" {
		// Its inner addresses are in no certificate.
		opt.TLS = opt.TLS.Clone()
		opt.TLS.ServerName, _ = split(u.opt.Collectors(addresses[0].Path)[0])
	}
	c, err := sctp.Dial(ctx, opt)
	if err != nil {
		return nil, err
	}
	return c, nil
}
