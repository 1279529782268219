package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// The two ends of the link between the lab and its namespace, from the block
// that RFC 2544 sets aside for measurements.
const (
	NearAddress = "198.18.77.1"
	FarAddress  = "198.18.77.2"
	linkPrefix  = "/30"
)

// Namespace is a network namespace that a pair of virtual Ethernet devices
// joins to the lab's own, so that every packet of a link can be counted.
type Namespace struct {
	handle netns.NsHandle
	near   netlink.Link
}

// NewNamespace makes a namespace and its link. It needs root.
func NewNamespace() (*Namespace, error) {
	n := &Namespace{}
	if err := n.setUp(); err != nil {
		return nil, errors.Join(fmt.Errorf("make a network namespace (needs root): %w", err), n.Close())
	}
	return n, nil
}

func (n *Namespace) setUp() error {
	runtime.LockOSThread()
	own, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer own.Close()
	n.handle, err = netns.New()
	// A thread that cannot go back stays locked and ends with its goroutine.
	if back := netns.Set(own); back != nil {
		return back
	}
	runtime.UnlockOSThread()
	if err != nil {
		return err
	}
	far, err := netlink.NewHandleAt(n.handle)
	if err != nil {
		return err
	}
	defer far.Close()
	attributes := netlink.NewLinkAttrs()
	attributes.Name = "sluicelab0"
	// Packets of one segment each, as a real link carries them: the counters
	// would otherwise show one header for many segments.
	attributes.GSOMaxSegs = 1
	pair := &netlink.Veth{LinkAttrs: attributes, PeerName: "sluicelab1", PeerNamespace: netlink.NsFd(n.handle)}
	if err := netlink.LinkAdd(pair); err != nil {
		return fmt.Errorf("add link %s: %w", attributes.Name, err)
	}
	near, err := netlink.NewHandle()
	if err != nil {
		return err
	}
	defer near.Close()
	if n.near, err = near.LinkByName("sluicelab0"); err != nil {
		return fmt.Errorf("find link sluicelab0: %w", err)
	}
	farEnd, err := far.LinkByName("sluicelab1")
	if err != nil {
		return fmt.Errorf("find link sluicelab1: %w", err)
	}
	if err := raise(nil, near, n.near, NearAddress, farEnd, FarAddress); err != nil {
		return err
	}
	if err := raise(n, far, farEnd, FarAddress, n.near, NearAddress); err != nil {
		return err
	}
	lo, err := far.LinkByName("lo")
	if err != nil {
		return err
	}
	return far.LinkSetUp(lo)
}

// raise puts up one end of the link, which is in namespace n, with its own
// address and its peer's, so that nothing but IPv4 packets crosses the link.
func raise(n *Namespace, h *netlink.Handle, own netlink.Link, address string, peer netlink.Link, peerAddress string) error {
	name := own.Attrs().Name
	// Without IPv6 there are no announcements on the link to be counted.
	err := n.do(func() error {
		err := os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("1"), 0o644)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	addr, err := netlink.ParseAddr(address + linkPrefix)
	if err != nil {
		return err
	}
	if err := h.LinkSetGSOMaxSegs(own, 1); err != nil {
		return fmt.Errorf("limit segments on %s: %w", name, err)
	}
	if err := h.AddrAdd(own, addr); err != nil {
		return fmt.Errorf("give %s the address %s: %w", name, address, err)
	}
	if err := h.LinkSetUp(own); err != nil {
		return fmt.Errorf("put up %s: %w", name, err)
	}
	// A neighbour that is known for good is never asked for.
	err = h.NeighSet(&netlink.Neigh{
		LinkIndex: own.Attrs().Index, State: netlink.NUD_PERMANENT,
		IP: net.ParseIP(peerAddress), HardwareAddr: peer.Attrs().HardwareAddr,
	})
	if err != nil {
		return fmt.Errorf("make %s known to %s: %w", peerAddress, name, err)
	}
	return nil
}

// Close takes the link down and lets the namespace go.
func (n *Namespace) Close() error {
	var errs []error
	if n.near != nil {
		errs = append(errs, netlink.LinkDel(n.near))
		n.near = nil
	}
	if n.handle.IsOpen() {
		errs = append(errs, n.handle.Close())
	}
	return errors.Join(errs...)
}

// do calls f on a thread inside the namespace; a nil Namespace is the lab's own.
func (n *Namespace) do(f func() error) error {
	if n == nil {
		return f()
	}
	runtime.LockOSThread()
	own, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer own.Close()
	if err := netns.Set(n.handle); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	err = f()
	if back := netns.Set(own); back != nil {
		// The thread stays locked and ends with its goroutine.
		return errors.Join(err, back)
	}
	runtime.UnlockOSThread()
	return err
}

// DialContext opens a connection from inside the namespace to a numeric
// address; a nil Namespace is the lab's own.
func (n *Namespace) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	var c net.Conn
	err := n.do(func() (err error) {
		c, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return c, err
}

// Traffic is what crossed a link, in both directions: IP packets, and their
// bytes with IP and TCP headers and without those of Ethernet.
type Traffic struct {
	Packets, Bytes uint64
}

// Sub returns what crossed since before.
func (t Traffic) Sub(before Traffic) Traffic {
	return Traffic{Packets: t.Packets - before.Packets, Bytes: t.Bytes - before.Bytes}
}

// Traffic reads the kernel's counters of the link.
func (n *Namespace) Traffic() (Traffic, error) {
	link, err := netlink.LinkByIndex(n.near.Attrs().Index)
	if err != nil {
		return Traffic{}, fmt.Errorf("read counters of %s: %w", n.near.Attrs().Name, err)
	}
	const ethernet = 14 // bytes of header that the counters include
	s := link.Attrs().Statistics
	packets := s.RxPackets + s.TxPackets
	return Traffic{Packets: packets, Bytes: s.RxBytes + s.TxBytes - ethernet*packets}, nil
}
