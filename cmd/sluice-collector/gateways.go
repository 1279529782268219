package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"sluice/collector"
	"sluice/config"
	"sluice/uplink/probe"
	"sluice/uplink/sctp"
	"sluice/uplink/tcp"
	"sluice/uplink/tunnel"
)

// mtuSafe passes on any path that people have (RFC 8200, section 5). Nothing tells
// a listener which packets pass to a peer of SCTP, as TCP's MSS does, and what goes
// to gateways is little.
const mtuSafe = 1280

// gateways is everything that gateways reach: carriers over TCP and SCTP, probes
// over UDP, tunnels.
type gateways struct {
	log       *slog.Logger
	listeners []collector.Listener
	probes    []net.PacketConn
	tunnels   *tunnel.Server // nil if there are none
}

// openTunnels makes the collector's end of the tunnels. Without the rights for it
// gateways still have their bare links, so that it only logs.
func (g *gateways) openTunnels(c *config.Collector) {
	t := c.Tunnel
	if t == nil {
		return
	}
	network, err := netip.ParsePrefix(t.Network)
	if err == nil {
		g.tunnels, err = tunnel.Listen(tunnel.ServerOptions{Dir: c.Collector.DataDir, Network: network, Port: t.Port, Logger: g.log})
	}
	if err != nil {
		g.tunnels = nil
		g.log.Error("no tunnels: gateways go over their bare links", "error", err)
	}
}

// leases answers gateways that ask for a tunnel; nil refuses them.
func (g *gateways) leases() collector.Tunnels {
	if g.tunnels == nil {
		return nil
	}
	return g.tunnels
}

// listen opens all listeners, after the tunnels. What is open is closed by close,
// also after an error.
func (g *gateways) listen(f *config.FarEnd, security *tls.Config) error {
	for _, address := range f.Listen {
		ln, err := tcp.Listen(address, security, g.log)
		if err != nil {
			return err
		}
		g.listeners = append(g.listeners, ln)
	}
	public, err := resolve(f.Listen)
	if err != nil {
		return err
	}
	var inner []netip.AddrPort
	if g.tunnels != nil {
		inner = within(g.tunnels.Addresses(), public)
	}
	for _, a := range slices.Concat(public, inner) {
		if err := g.listenProbes(a); err != nil {
			return err
		}
	}
	if err := sctp.Supported(); err != nil {
		g.log.Info("gateways can use TCP only", "reason", err)
	} else {
		// A gateway is told all addresses of the listener that it reaches, so the
		// inner ones have a listener of their own, and so has each port.
		for _, addresses := range slices.Concat(byPort(inner), byPort(public)) {
			if err := g.listenSCTP(addresses, security); err != nil {
				return err
			}
		}
	}
	for _, ln := range g.listeners {
		g.log.Info("gateways can connect", "network", ln.Addr().Network(), "address", ln.Addr().String())
	}
	return nil
}

func (g *gateways) listenProbes(a netip.AddrPort) error {
	// The inner addresses share the port with an unspecified one.
	shared := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var set error
		if err := c.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) }); err != nil {
			return err
		}
		return set
	}}
	conn, err := shared.ListenPacket(context.Background(), "udp", a.String())
	if err != nil {
		return fmt.Errorf("%w; free UDP port %d, which answers gateways' probes", err, a.Port())
	}
	g.probes = append(g.probes, conn)
	return nil
}

func (g *gateways) listenSCTP(addresses []netip.AddrPort, security *tls.Config) error {
	addresses, err := g.specific(addresses)
	if err != nil || len(addresses) == 0 {
		return err
	}
	ln, err := sctp.Listen(addresses, security, sctp.Tuning{MTU: mtuSafe}, g.log)
	if err != nil {
		return err
	}
	g.listeners = append(g.listeners, ln)
	return nil
}

// within is where gateways in tunnels reach the collector: at every inner address
// by every port of the others, since a gateway keeps to the one that it knows.
func within(tunnels []netip.Addr, public []netip.AddrPort) (inner []netip.AddrPort) {
	for _, group := range byPort(public) {
		for _, a := range tunnels {
			inner = append(inner, netip.AddrPortFrom(a, group[0].Port()))
		}
	}
	return inner
}

// specific replaces an unspecified address by all of this machine's that other
// machines can reach, but for those in tunnels: SCTP tells its peers every
// address that it is bound to, and has them tried.
func (g *gateways) specific(addresses []netip.AddrPort) ([]netip.AddrPort, error) {
	var out []netip.AddrPort
	for _, a := range addresses {
		if !a.Addr().IsUnspecified() {
			out = append(out, a)
			continue
		}
		own, err := net.InterfaceAddrs()
		if err != nil {
			return nil, fmt.Errorf("list own addresses: %w", err)
		}
		for _, o := range own {
			n, err := netip.ParsePrefix(o.String())
			if err != nil || !n.Addr().IsGlobalUnicast() || n.Addr().Is6() && a.Addr().Is4() {
				continue
			}
			if g.tunnels == nil || !slices.Contains(g.tunnels.Addresses(), n.Addr()) {
				out = append(out, netip.AddrPortFrom(n.Addr(), a.Port()))
			}
		}
	}
	return out, nil
}

// serve runs until ctx ends or a listener fails.
func (g *gateways) serve(ctx context.Context, col *collector.Collector, spawn func(func() error)) {
	for _, ln := range g.listeners {
		spawn(func() error { return col.Serve(ctx, ln) })
	}
	for _, conn := range g.probes {
		spawn(func() error {
			if err := probe.Respond(ctx, conn); err != nil {
				return fmt.Errorf("answer probes on %s: %w", conn.LocalAddr(), err)
			}
			return nil
		})
	}
}

func (g *gateways) close() {
	var errs []error
	for _, ln := range g.listeners {
		errs = append(errs, ln.Close())
	}
	for _, conn := range g.probes {
		errs = append(errs, conn.Close())
	}
	if g.tunnels != nil {
		errs = append(errs, g.tunnels.Close())
	}
	if err := errors.Join(errs...); err != nil {
		g.log.Warn("close listeners", "error", err)
	}
}

// resolve parses addresses to listen on.
func resolve(listen []string) ([]netip.AddrPort, error) {
	var out []netip.AddrPort
	for _, s := range listen {
		a, err := net.ResolveTCPAddr("tcp", s)
		if err != nil {
			return nil, fmt.Errorf("listen on %s: %w", s, err)
		}
		p := a.AddrPort()
		if !p.IsValid() { // ":7600"
			p = netip.AddrPortFrom(netip.IPv6Unspecified(), uint16(a.Port))
		}
		out = append(out, netip.AddrPortFrom(p.Addr().Unmap(), p.Port()))
	}
	return out, nil
}

// byPort groups addresses by their port.
func byPort(addresses []netip.AddrPort) (groups [][]netip.AddrPort) {
	for _, a := range addresses {
		i := slices.IndexFunc(groups, func(g []netip.AddrPort) bool { return g[0].Port() == a.Port() })
		if i < 0 {
			groups = append(groups, nil)
			i = len(groups) - 1
		}
		groups[i] = append(groups[i], a)
	}
	return groups
}
