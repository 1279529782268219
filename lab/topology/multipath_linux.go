package topology

import (
	"errors"
	"fmt"
	"net/netip"
)

// PathOptions describe one path of a Multipath.
type PathOptions struct {
	Device   string  // the gateway's device, "wlan0"
	Up, Down Quality // from and to the gateway
}

// Multipath is a gateway and a collector that several paths join. Each path has
// two routers, so that no queue stands on the device of a sender:
//
//	gateway -- access -- near -- middle -- far -- exit -- collector
//
// The middle link has the rate, the delay and the queue; loss comes after it, on
// the exit up and on the access down, when a packet has cost what it costs.
//
// Path i has the networks 10.71.i.0/24 (access), 10.72.i.0/24 (middle) and
// 10.73.i.0/24 (exit). The gateway is .2 on its access link and has a default
// route of metric 100+i by way of the near router, .1. The collector is .2 on
// its exit link and, by whichever path, Common.
type Multipath struct {
	Gateway, Collector *Host
	Common             netip.Addr // an address of the collector that all paths lead to
	Paths              []*Path
}

// Path is one way from the gateway to the collector.
type Path struct {
	Near, Far            *Host // routers
	Access, Middle, Exit *Link // A is the end on the gateway's side
	number               int
}

// NewMultipath makes a network of one path or more.
func NewMultipath(paths ...PathOptions) (*Multipath, error) {
	m := &Multipath{Common: netip.AddrFrom4([4]byte{10, 73, 255, 1})}
	if err := m.setUp(paths); err != nil {
		return nil, errors.Join(fmt.Errorf("make a network of %d paths: %w", len(paths), err), m.Close())
	}
	return m, nil
}

func (m *Multipath) setUp(paths []PathOptions) (err error) {
	if m.Gateway, err = NewHost("gateway"); err != nil {
		return err
	}
	if m.Collector, err = NewHost("collector"); err != nil {
		return err
	}
	if err := m.Collector.Address(m.Common); err != nil {
		return err
	}
	for i, o := range paths {
		p := &Path{number: i}
		m.Paths = append(m.Paths, p)
		if err := p.setUp(m, o); err != nil {
			return err
		}
	}
	return nil
}

func (p *Path) setUp(m *Multipath, o PathOptions) (err error) {
	if p.Near, err = NewHost(fmt.Sprintf("near router %d", p.number)); err != nil {
		return err
	}
	if p.Far, err = NewHost(fmt.Sprintf("far router %d", p.number)); err != nil {
		return err
	}
	for _, l := range []struct {
		link    **Link
		network byte
		a, b    *Host
		aDevice string
		bDevice string
		aPlace  byte
		bPlace  byte
	}{
		{&p.Access, 71, m.Gateway, p.Near, o.Device, "access", 2, 1},
		{&p.Middle, 72, p.Near, p.Far, "middle", "middle", 2, 1},
		{&p.Exit, 73, p.Far, m.Collector, "exit", fmt.Sprintf("exit%d", p.number), 1, 2},
	} {
		*l.link, err = Connect(
			EndOptions{Host: l.a, Device: l.aDevice, Address: p.address(l.network, l.aPlace)},
			EndOptions{Host: l.b, Device: l.bDevice, Address: p.address(l.network, l.bPlace)},
		)
		if err != nil {
			return err
		}
	}
	for _, router := range []*Host{p.Near, p.Far} {
		if err := router.Forward(); err != nil {
			return err
		}
	}
	access, middle := p.address(71, 0), p.address(72, 0)
	for _, r := range []struct {
		host *Host
		to   netip.Prefix
		via  netip.Addr
	}{
		{p.Near, netip.PrefixFrom(netip.IPv4Unspecified(), 0), p.Middle.B.Address()},
		{p.Far, access, p.Middle.A.Address()},
		{p.Far, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 73, 0, 0}), 16), p.Exit.B.Address()},
		{m.Collector, access, p.Exit.A.Address()},
		{m.Collector, middle, p.Exit.A.Address()},
	} {
		if err := r.host.Route(r.to, r.via, 0); err != nil {
			return err
		}
	}
	if err := p.Join(m); err != nil {
		return err
	}
	if o.Up == (Quality{}) && o.Down == (Quality{}) {
		return nil
	}
	return p.Set(o.Up, o.Down)
}

func (p *Path) address(network, place byte) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, network, byte(p.number), place}), 24)
}

// Join gives the gateway its default route by this path, as its DHCP client or
// modem would, also again after the link was down or renumbered.
func (p *Path) Join(m *Multipath) error {
	return m.Gateway.Route(netip.PrefixFrom(netip.IPv4Unspecified(), 0), p.Access.B.Address(), 100+p.number)
}

// Set gives the path its quality in both directions, from now on.
func (p *Path) Set(up, down Quality) error {
	return errors.Join(
		p.Middle.A.Set(up.lossless()), p.Exit.A.Set(up.lossOnly()),
		p.Middle.B.Set(down.lossless()), p.Access.B.Set(down.lossOnly()),
	)
}

// lossless is what a packet meets before it may be lost.
func (q Quality) lossless() Quality {
	q.Loss, q.Burst = 0, Burst{}
	return q
}

func (q Quality) lossOnly() Quality { return Quality{Loss: q.Loss, Burst: q.Burst} }

// Cut stops the path silently, as when a radio goes out of reach.
func (p *Path) Cut() error { return p.Middle.Cut() }

// Restore ends a Cut.
func (p *Path) Restore() error { return p.Middle.Restore() }

// Masquerade puts the gateway behind a NAT router on this path.
func (p *Path) Masquerade() error { return p.Middle.A.Masquerade() }

// Drop makes a middlebox of the path drop some protocols in both directions, and
// pass all others again.
func (p *Path) Drop(protocols ...Protocol) error { return p.Middle.Drop(protocols...) }

// Close lets all hosts go, once the programs on them have ended.
func (m *Multipath) Close() error {
	errs := []error{m.Gateway.Close(), m.Collector.Close()}
	for _, p := range m.Paths {
		errs = append(errs, p.Near.Close(), p.Far.Close())
	}
	return errors.Join(errs...)
}
