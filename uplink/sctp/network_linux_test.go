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
func need(t *testing.T, what string, err error) {
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
func newHost(t *testing.T) *host {
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
func (h *host) in(t *testing.T, f func() error) {
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

func (h *host) do(t *testing.T, f func(nl *netlink.Handle) error) {
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
func join(t *testing.T, a *host, aName string, aAddr netip.Addr, b *host, bName string, bAddr netip.Addr) {
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
func (h *host) address(t *testing.T, name string, addr netip.Addr) {
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
func (h *host) route(t *testing.T, to, via netip.Addr) {
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
func (h *host) shape(t *testing.T, name string, s shape) {
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

// sent is how many bytes left by an interface.
func (h *host) sent(t *testing.T, name string) (n uint64) {
	t.Helper()
	h.do(t, func(nl *netlink.Handle) error {
		link, err := nl.LinkByName(name)
		if err != nil {
			return err
		}
		n = link.Attrs().Statistics.TxBytes
		return nil
	})
	return n
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

func newTwoPaths(t *testing.T) *twoPaths {
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
func (n *twoPaths) shape(t *testing.T, path int, s shape) {
	t.Helper()
	n.gateway.shape(t, cables[path], s)
	n.collector.shape(t, cables[path], s)
}
