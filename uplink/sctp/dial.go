package sctp

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"sluice/uplink/secure"
)

// Options configures a dialled carrier.
type Options struct {
	// Local are the own addresses, one a path; empty for any. If there are as many
	// as remote ones, each belongs to the remote one at its place.
	Local []netip.Addr
	// Remote are the collector's addresses, one a path, with the same port.
	Remote []netip.AddrPort
	// TLS holds the gateway's certificate and the authorities that may sign the
	// collector's, and the collector's name; without one, its first address must
	// be in its certificate.
	TLS    *tls.Config
	Tuning Tuning
	// Control, if set, is called with the socket before it is bound.
	Control func(ctx context.Context, network, address string, c syscall.RawConn) error
}

// Dial opens a carrier, and gives up when ctx ends: the kernel repeats its
// request until then, on all paths in turn.
func Dial(ctx context.Context, opt Options) (*Conn, error) {
	config := secure.Config(opt.TLS)
	if config.ServerName == "" && len(opt.Remote) > 0 {
		config.ServerName = opt.Remote[0].Addr().Unmap().String()
	}
	a, err := DialRaw(ctx, opt)
	if err != nil {
		return nil, err
	}
	encrypted := tls.Client(a, config)
	if err := encrypted.HandshakeContext(ctx); err != nil {
		a.Close()
		return nil, fmt.Errorf("tls handshake with %s: %w", a.remote, err)
	}
	c, err := newConn(encrypted, a)
	if err != nil {
		a.Close()
		return nil, err
	}
	return c, nil
}

// DialRaw opens an association without TLS, for measuring what the kernel does.
func DialRaw(ctx context.Context, opt Options) (*Association, error) {
	remote, err := endpoint(opt.Remote)
	if err != nil {
		return nil, fmt.Errorf("dial sctp: %w", err)
	}
	local := Addr{IPs: make([]netip.Addr, len(opt.Local))}
	for i, ip := range opt.Local {
		local.IPs[i] = ip.Unmap()
	}
	s, err := openSocket(remote.has6() || local.has6())
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if err := dialOn(ctx, s, opt, local, remote); err != nil {
		s.close()
		return nil, &net.OpError{Op: "dial", Net: "sctp", Addr: remote, Err: err}
	}
	a := newAssociation(s, opt.Tuning, local.IPs, remote)
	if !opt.Tuning.kernel {
		// Two round trips, more if something was lost: enough that the first data
		// of a slow path raises no alarm.
		a.setFloor(time.Since(start) / 2)
	}
	return a, nil
}

func dialOn(ctx context.Context, s *socket, opt Options, local, remote Addr) error {
	if opt.Control != nil {
		if err := opt.Control(ctx, "sctp", remote.String(), s.raw); err != nil {
			return err
		}
	}
	if err := opt.Tuning.apply(s); err != nil {
		return err
	}
	if len(local.IPs) > 0 {
		if err := s.bind(local.IPs, 0, true); err != nil {
			return fmt.Errorf("bind to %s: %w", local, err)
		}
	}
	return s.connect(ctx, remote.IPs, remote.Port)
}
