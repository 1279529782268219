package topology

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// EndOptions describe one end of a link.
type EndOptions struct {
	Host    *Host        // nil for the one that this process is in
	Device  string       // its name there, "wlan0"
	Address netip.Prefix // IPv4, with the length of the link's network
}

// Link is a pair of virtual Ethernet devices.
type Link struct {
	A, B *End
}

// End is one end of a link: what it sends has its own quality.
type End struct {
	Host   *Host
	Device string

	index   int
	address netip.Prefix
	peer    *End
}

// frame is the most that a device takes in one piece, in bytes.
const frame = 1500

// Connect links two hosts. Each end has its address and knows its peer's, so that
// nothing but IPv4 packets crosses the link.
func Connect(a, b EndOptions) (*Link, error) {
	l := &Link{
		A: &End{Host: a.Host, Device: a.Device, address: a.Address},
		B: &End{Host: b.Host, Device: b.Device, address: b.Address},
	}
	l.A.peer, l.B.peer = l.B, l.A
	attributes := netlink.NewLinkAttrs()
	attributes.Name, attributes.MTU = a.Device, frame
	pair := &netlink.Veth{LinkAttrs: attributes, PeerName: b.Device, PeerMTU: frame}
	if b.Host != nil {
		pair.PeerNamespace = netlink.NsFd(b.Host.ns)
	}
	if err := a.Host.netlink().LinkAdd(pair); err != nil {
		return nil, fmt.Errorf("link %s to %s: %w", l.A, l.B, err)
	}
	if err := l.setUp(); err != nil {
		return nil, errors.Join(fmt.Errorf("link %s to %s: %w", l.A, l.B, err), l.Close())
	}
	return l, nil
}

func (l *Link) setUp() error {
	for _, e := range []*End{l.A, l.B} {
		link, err := e.Host.netlink().LinkByName(e.Device)
		if err != nil {
			return fmt.Errorf("find %s: %w", e, err)
		}
		e.index = link.Attrs().Index
		if err := e.single(link); err != nil {
			return err
		}
	}
	for _, e := range []*End{l.A, l.B} {
		if err := e.Up(); err != nil {
			return err
		}
	}
	return nil
}

// single makes the end send packets of one segment each, as a real link carries
// them: loss would otherwise take many at once, and counters show one header for
// them all.
func (e *End) single(link netlink.Link) error {
	h := e.Host.netlink()
	if err := h.LinkSetGSOMaxSegs(link, 1); err != nil {
		return fmt.Errorf("limit segments of %s: %w", e, err)
	}
	// SCTP goes by the size alone.
	if err := h.LinkSetGSOMaxSize(link, frame); err != nil {
		return fmt.Errorf("limit segments of %s: %w", e, err)
	}
	return e.Host.withoutIPv6(e.Device)
}

// Close takes the link down for good.
func (l *Link) Close() error {
	link, err := l.A.Host.netlink().LinkByName(l.A.Device)
	if err == nil {
		err = l.A.Host.netlink().LinkDel(link)
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", l.A, err)
	}
	return nil
}

// Cut stops the link silently in both directions: its devices stay up and their
// queues empty themselves, as when a radio goes out of reach.
func (l *Link) Cut() error { return errors.Join(l.A.cut(true), l.B.cut(true)) }

// Restore ends a Cut.
func (l *Link) Restore() error { return errors.Join(l.A.cut(false), l.B.cut(false)) }

// Drop makes both ends drop what arrives of some protocols, and pass all others
// again.
func (l *Link) Drop(protocols ...Protocol) error {
	return errors.Join(l.A.Drop(protocols...), l.B.Drop(protocols...))
}

// Set gives both directions a quality.
func (l *Link) Set(q Quality) error { return errors.Join(l.A.Set(q), l.B.Set(q)) }

// Traffic returns what has crossed the link in both directions.
func (l *Link) Traffic() (Traffic, error) {
	sent, received, err := l.A.Traffic()
	return sent.Add(received), err
}

func (e *End) String() string { return fmt.Sprintf("%s of %s", e.Device, e.Host) }

// Address returns the end's present address.
func (e *End) Address() netip.Addr { return e.address.Addr() }

// Up puts the end up, with its address, and makes the peers known to each other.
// Routes over it have to be set again.
func (e *End) Up() error {
	h := e.Host.netlink()
	link, err := h.LinkByIndex(e.index)
	if err != nil {
		return fmt.Errorf("find %s: %w", e, err)
	}
	if err := h.AddrReplace(link, &netlink.Addr{IPNet: ipNet(e.address)}); err != nil {
		return fmt.Errorf("give %s the address %s: %w", e, e.address, err)
	}
	if err := h.LinkSetUp(link); err != nil {
		return fmt.Errorf("put up %s: %w", e, err)
	}
	return errors.Join(e.meet(), e.peer.meet())
}

// Down takes the end down: its peer sees that the link has no carrier.
func (e *End) Down() error {
	h := e.Host.netlink()
	link, err := h.LinkByIndex(e.index)
	if err == nil {
		err = h.LinkSetDown(link)
	}
	if err != nil {
		return fmt.Errorf("take down %s: %w", e, err)
	}
	return nil
}

// meet makes the peer's address known at this end for good, so that it is never
// asked for. An end that is down learns it when it comes up.
func (e *End) meet() error {
	own, err := e.Host.netlink().LinkByIndex(e.index)
	if err != nil {
		return fmt.Errorf("find %s: %w", e, err)
	}
	peer, err := e.peer.Host.netlink().LinkByIndex(e.peer.index)
	if err != nil {
		return fmt.Errorf("find %s: %w", e.peer, err)
	}
	if own.Attrs().RawFlags&unix.IFF_UP == 0 {
		return nil
	}
	err = e.Host.netlink().NeighSet(&netlink.Neigh{
		LinkIndex: e.index, State: netlink.NUD_PERMANENT,
		IP: e.peer.address.Addr().AsSlice(), HardwareAddr: peer.Attrs().HardwareAddr,
	})
	if err != nil {
		return fmt.Errorf("make %s known to %s: %w", e.peer.address.Addr(), e, err)
	}
	return nil
}

// Renumber replaces the end's address, as a DHCP server or a modem's redial
// does. Routes that name the old address have to be set again.
func (e *End) Renumber(address netip.Prefix) error {
	h := e.Host.netlink()
	link, err := h.LinkByIndex(e.index)
	if err != nil {
		return fmt.Errorf("find %s: %w", e, err)
	}
	old := e.address
	if old == address {
		return nil
	}
	if err := h.AddrDel(link, &netlink.Addr{IPNet: ipNet(old)}); err != nil {
		return fmt.Errorf("take the address %s from %s: %w", old, e, err)
	}
	e.address = address
	return e.Up()
}

// SetMTU changes how large a packet the end sends, in bytes.
func (e *End) SetMTU(bytes int) error {
	h := e.Host.netlink()
	link, err := h.LinkByIndex(e.index)
	if err == nil {
		err = h.LinkSetMTU(link, bytes)
	}
	if err != nil {
		return fmt.Errorf("set the MTU of %s to %d: %w", e, bytes, err)
	}
	return nil
}

// Traffic returns what the end has sent and received so far.
func (e *End) Traffic() (sent, received Traffic, err error) {
	link, err := e.Host.netlink().LinkByIndex(e.index)
	if err != nil {
		return sent, received, fmt.Errorf("read counters of %s: %w", e, err)
	}
	const ethernet = 14 // bytes of header that the counters include
	s := link.Attrs().Statistics
	sent = Traffic{Packets: s.TxPackets, Bytes: s.TxBytes - ethernet*s.TxPackets}
	received = Traffic{Packets: s.RxPackets, Bytes: s.RxBytes - ethernet*s.RxPackets}
	return sent, received, nil
}
