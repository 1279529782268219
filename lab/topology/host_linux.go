package topology

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Host is a network namespace. A nil Host is the one that this process is in:
// programs run on it and links may end in it, but it is otherwise left alone.
//
// A namespace has no name outside this process and goes when the last user
// does, so nothing is left behind by a process that was killed.
type Host struct {
	name   string
	ns     netns.NsHandle
	handle *netlink.Handle

	mu    sync.Mutex // guards the field below
	rules rules
}

// NewHost makes a host that is linked to nothing. It has no IPv6, so that nothing
// but what programs send crosses its links. It needs root.
func NewHost(name string) (*Host, error) {
	h := &Host{name: name}
	if err := h.setUp(); err != nil {
		return nil, errors.Join(fmt.Errorf("make host %s (needs root): %w", name, err), h.Close())
	}
	return h, nil
}

func (h *Host) setUp() error {
	h.ns = netns.None()
	err := onThread(func() (err error) {
		h.ns, err = netns.New()
		return err
	})
	if err != nil {
		return err
	}
	if h.handle, err = netlink.NewHandleAt(h.ns, unix.NETLINK_ROUTE); err != nil {
		return err
	}
	for _, s := range []struct{ key, value string }{
		{"net.ipv6.conf.all.disable_ipv6", "1"},
		{"net.ipv6.conf.default.disable_ipv6", "1"},
		// A host with several links takes packets in by any of them.
		{"net.ipv4.conf.all.rp_filter", "0"},
		{"net.ipv4.conf.default.rp_filter", "0"},
		{"net.ipv4.conf.all.send_redirects", "0"},
		{"net.ipv4.conf.default.send_redirects", "0"},
		// What one connection measured must not speed up the next.
		{"net.ipv4.tcp_no_metrics_save", "1"},
	} {
		// A kernel may be without IPv6, and some settings are not a host's own.
		if err := h.Sysctl(s.key, s.value); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	lo, err := h.handle.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find lo: %w", err)
	}
	return h.handle.LinkSetUp(lo)
}

// Close lets the host and its links go, once the programs on it have ended.
func (h *Host) Close() error {
	if h == nil {
		return nil
	}
	if h.handle != nil {
		h.handle.Close()
		h.handle = nil
	}
	if h.ns.IsOpen() {
		return h.ns.Close()
	}
	return nil
}

func (h *Host) String() string {
	if h == nil {
		return "this host"
	}
	return h.name
}

// onThread calls f on a thread of its own and puts the thread back into its
// network namespace afterwards.
func onThread(f func() error) error {
	runtime.LockOSThread()
	own, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer own.Close()
	err = f()
	if back := netns.Set(own); back != nil {
		// The thread stays locked and ends with its goroutine.
		return errors.Join(err, back)
	}
	runtime.UnlockOSThread()
	return err
}

// Do calls f on a thread inside the host. What f opens stays there; goroutines
// that it starts do not.
func (h *Host) Do(f func() error) error {
	if h == nil {
		return f()
	}
	return onThread(func() error {
		if err := netns.Set(h.ns); err != nil {
			return fmt.Errorf("enter host %s: %w", h, err)
		}
		return f()
	})
}

// Start starts a program on the host.
func (h *Host) Start(cmd *exec.Cmd) error { return h.Do(cmd.Start) }

// DialContext connects from the host to a numeric address.
func (h *Host) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	var c net.Conn
	err := h.Do(func() (err error) {
		c, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return c, err
}

// Listen listens on the host at a numeric address.
func (h *Host) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	var l net.Listener
	err := h.Do(func() (err error) {
		l, err = (&net.ListenConfig{}).Listen(ctx, network, address)
		return err
	})
	return l, err
}

// Sysctl sets one of the host's kernel parameters, "net.ipv4.ip_forward".
func (h *Host) Sysctl(key, value string) error {
	path := filepath.Join("/proc/sys", strings.ReplaceAll(key, ".", "/"))
	err := h.Do(func() error { return os.WriteFile(path, []byte(value), 0o644) })
	if err != nil {
		return fmt.Errorf("set %s of %s: %w", key, h, err)
	}
	return nil
}

// Forward makes the host a router.
func (h *Host) Forward() error { return h.Sysctl("net.ipv4.ip_forward", "1") }

// Address gives the host an address that belongs to none of its links.
func (h *Host) Address(a netip.Addr) error {
	lo, err := h.netlink().LinkByName("lo")
	if err == nil {
		err = h.netlink().AddrAdd(lo, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(a, a.BitLen()))})
	}
	if err != nil {
		return fmt.Errorf("give %s the address %s: %w", h, a, err)
	}
	return nil
}

// Route sends what goes to a prefix by way of a neighbour; of several routes to
// the same, the one with the lowest metric is used. It replaces a route of the
// same prefix and metric.
func (h *Host) Route(to netip.Prefix, via netip.Addr, metric int) error {
	err := h.netlink().RouteReplace(&netlink.Route{Dst: ipNet(to), Gw: via.AsSlice(), Priority: metric})
	if err != nil {
		return fmt.Errorf("route %s of %s via %s: %w", to, h, via, err)
	}
	return nil
}

// netlink returns the socket to change the host by.
func (h *Host) netlink() *netlink.Handle {
	if h == nil {
		return &netlink.Handle{}
	}
	return h.handle
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// withoutIPv6 keeps IPv6's announcements off a device.
func (h *Host) withoutIPv6(device string) error {
	err := h.Sysctl("net.ipv6.conf."+device+".disable_ipv6", "1")
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
