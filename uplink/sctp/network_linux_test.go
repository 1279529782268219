//go:build !386

package sctp

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// need skips a test on a machine without what it needs, and fails it in the
// laboratory's guest, which has everything.
func need(t testing.TB, what string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if os.Getenv("SLUICE_GUEST") != "" {
		t.Fatalf("needs %s: %v", what, err)
	}
	t.Skipf("needs %s: runs in the lab's guest: %v", what, err)
}

// host is a network namespace, with its own idea of what is where.
type host struct {
	ns netns.NsHandle
}

// newHost makes a namespace that lives as long as the test. Its name is not
// kept anywhere: it goes with its last handle.
func newHost(t testing.TB) *host {
	t.Helper()
	h := &host{}
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The thread is not unlocked: it ends with its goroutine, and nobody
		// inherits its namespace.
		runtime.LockOSThread()
		h.ns, err = netns.New()
	}()
	<-done
	need(t, "root and network namespaces", err)
	t.Cleanup(func() { h.ns.Close() })
	h.do(t, func(nl *netlink.Handle) error {
		lo, err := nl.LinkByName("lo")
		if err != nil {
			return err
		}
		return nl.LinkSetUp(lo)
	})
	return h
}

// in calls f on a thread of the host's namespace; sockets that it opens stay
// there.
func (h *host) in(t testing.TB, f func() error) {
	t.Helper()
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if err := netns.Set(h.ns); err != nil {
			failed <- err
			return
		}
		failed <- f()
	}()
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
}

func (h *host) do(t testing.TB, f func(nl *netlink.Handle) error) {
	t.Helper()
	nl, err := netlink.NewHandleAt(h.ns, unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer nl.Close()
	if err := f(nl); err != nil {
		t.Fatal(err)
	}
}

// join lays a cable between two hosts, with an interface and an address at each
// end.
func join(t testing.TB, a *host, aName string, aAddr netip.Addr, b *host, bName string, bAddr netip.Addr) {
	t.Helper()
	a.do(t, func(nl *netlink.Handle) error {
		return nl.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: aName},
			PeerName:  bName, PeerNamespace: netlink.NsFd(b.ns),
		})
	})
	for _, end := range []struct {
		h    *host
		name string
		addr netip.Addr
	}{{a, aName, aAddr}, {b, bName, bAddr}} {
		end.h.address(t, end.name, end.addr)
		end.h.do(t, func(nl *netlink.Handle) error {
			link, err := nl.LinkByName(end.name)
			if err != nil {
				return err
			}
			return nl.LinkSetUp(link)
		})
	}
}

// address gives an interface an address of a /24.
func (h *host) address(t testing.TB, name string, addr netip.Addr) {
	t.Helper()
	h.do(t, func(nl *netlink.Handle) error {
		link, err := nl.LinkByName(name)
		if err != nil {
			return err
		}
		return nl.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(24, 32)}})
	})
}

// route sends what is for a /24 by a neighbour.
func (h *host) route(t testing.TB, to, via netip.Addr) {
	t.Helper()
	h.do(t, func(nl *netlink.Handle) error {
		return nl.RouteAdd(&netlink.Route{
			Dst: &net.IPNet{IP: to.AsSlice(), Mask: net.CIDRMask(24, 32)}, Gw: via.AsSlice(),
		})
	})
}

// shape is what an interface does to what leaves by it.
type shape struct {
	delay, jitter time.Duration
	loss          float32 // percent
	rate          uint64  // bits a second, 0 for no limit
	limit         uint32  // packets in the queue, 0 for many
}

// shape replaces what an interface does.
func (h *host) shape(t testing.TB, name string, s shape) {
	t.Helper()
	h.do(t, func(nl *netlink.Handle) error {
		link, err := nl.LinkByName(name)
		if err != nil {
			return err
		}
		if s.limit == 0 {
			s.limit = 10000
		}
		err = nl.QdiscReplace(netlink.NewNetem(
			netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
			netlink.NetemQdiscAttrs{
				Latency: uint32(s.delay.Microseconds()), Jitter: uint32(s.jitter.Microseconds()),
				Loss: s.loss, Limit: s.limit, Rate64: s.rate / 8,
			}))
		if err != nil {
			return fmt.Errorf("shape %s: %w", name, err)
		}
		return nil
	})
}

// count is how much left by an interface.
func (h *host) count(t testing.TB, name string) (bytes, packets uint64) {
	t.Helper()
	h.do(t, func(nl *netlink.Handle) error {
		link, err := nl.LinkByName(name)
		if err != nil {
			return err
		}
		bytes, packets = link.Attrs().Statistics.TxBytes, link.Attrs().Statistics.TxPackets
		return nil
	})
	return bytes, packets
}

// sent is how many bytes left by an interface.
func (h *host) sent(t testing.TB, name string) uint64 {
	t.Helper()
	bytes, _ := h.count(t, name)
	return bytes
}

// single has a host hand packets over one by one, as hardware would send them:
// several in one buffer would be lost together.
func (h *host) single(t testing.TB, name string) {
	t.Helper()
	h.do(t, func(nl *netlink.Handle) error {
		link, err := nl.LinkByName(name)
		if err != nil {
			return err
		}
		return nl.LinkSetGSOMaxSize(link, link.Attrs().MTU)
	})
}

// forward lets a host pass on what is for others.
func (h *host) forward(t testing.TB) {
	t.Helper()
	h.in(t, func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644) })
}

// lossyPath is a gateway and a collector with two routers between them, a rate in
// bits a second and a queue of 50 packets on the first hop, random loss on the
// next: what is lost has used the link. The round trip is 4 ms.
func lossyPath(t testing.TB, rate uint64, loss float32) (gateway, collector *host, local netip.Addr, remote netip.AddrPort) {
	t.Helper()
	need(t, "SCTP", Supported())
	gateway, collector = newHost(t), newHost(t)
	first, second := newHost(t), newHost(t)
	ip := func(net, host byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 91, net, host}) }
	join(t, gateway, "up", ip(0, 2), first, "down", ip(0, 1))
	join(t, first, "up", ip(1, 2), second, "down", ip(1, 1))
	join(t, second, "up", ip(2, 2), collector, "down", ip(2, 1))
	gateway.single(t, "up")
	collector.single(t, "down")
	first.forward(t)
	second.forward(t)
	gateway.route(t, ip(1, 0), ip(0, 1))
	gateway.route(t, ip(2, 0), ip(0, 1))
	first.route(t, ip(2, 0), ip(1, 1))
	second.route(t, ip(0, 0), ip(1, 2))
	collector.route(t, ip(0, 0), ip(2, 2))
	collector.route(t, ip(1, 0), ip(2, 2))
	first.shape(t, "up", shape{delay: 2 * time.Millisecond, rate: rate, limit: 50})
	second.shape(t, "down", shape{delay: 2 * time.Millisecond})
	second.shape(t, "up", shape{loss: loss})
	return gateway, collector, ip(0, 2), netip.AddrPortFrom(ip(2, 1), port)
}

// twoPaths is a gateway and a collector with two cables between them.
type twoPaths struct {
	gateway, collector *host
	local              []netip.Addr
	remote             []netip.AddrPort
}

// paths' interfaces, the same at both ends.
var cables = []string{"wlan0", "wwan0"}

const port = 7443

func newTwoPaths(t testing.TB) *twoPaths {
	t.Helper()
	need(t, "SCTP", Supported())
	n := &twoPaths{gateway: newHost(t), collector: newHost(t)}
	for i, name := range cables {
		near, far := netip.AddrFrom4([4]byte{10, 90, byte(i), 2}), netip.AddrFrom4([4]byte{10, 90, byte(i), 1})
		join(t, n.gateway, name, near, n.collector, name, far)
		n.local = append(n.local, near)
		n.remote = append(n.remote, netip.AddrPortFrom(far, port))
	}
	return n
}

// shape gives both directions of a path the same properties.
func (n *twoPaths) shape(t testing.TB, path int, s shape) {
	t.Helper()
	n.gateway.shape(t, cables[path], s)
	n.collector.shape(t, cables[path], s)
}
