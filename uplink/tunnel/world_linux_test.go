package tunnel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// world is network namespaces:
//
//	gateway w0 192.168.1.2 ---- router 1 (NAT) 198.18.1.2 ---- core ---- 198.18.0.2 collector
//	        w1 192.168.2.2 ---- router 2 (NAT) 198.18.2.2 ------+
//
// The gateway has a table of routes for each uplink, which the marks 101 and 102
// choose, as uplink/paths makes them.
type world struct {
	t       *testing.T
	gateway *host
	router  [2]*host
	core    *host
	far     *host
}

// host is a network namespace.
type host struct {
	t  *testing.T
	ns netns.NsHandle
	nl *netlink.Handle
}

var (
	collectorAddr = netip.MustParseAddr("198.18.0.2")
	uplinks       = []Uplink{{Name: "w0", Mark: 101, MTU: 1500}, {Name: "w1", Mark: 102, MTU: 1500}}
)

// need skips a test where something is missing, but in the lab's guest, which has
// it all, fails.
func need(t *testing.T, ok bool, what string) {
	t.Helper()
	switch {
	case ok:
	case os.Getenv("SLUICE_GUEST") != "":
		t.Fatalf("the guest lacks %s", what)
	default:
		t.Skipf("needs %s: runs in the lab's guest", what)
	}
}

// backends runs a test with the kernel's WireGuard and with that in the process.
func backends(t *testing.T, test func(t *testing.T, backend string)) {
	need(t, os.Geteuid() == 0, "root")
	t.Run("process", func(t *testing.T) {
		_, err := os.Stat("/dev/net/tun")
		need(t, err == nil, "/dev/net/tun")
		test(t, "process")
	})
	t.Run("kernel", func(t *testing.T) {
		needKernel(t)
		test(t, "kernel")
	})
}

func needKernel(t *testing.T) {
	t.Helper()
	need(t, os.Geteuid() == 0, "root")
	nl, err := openNetlink()
	if err != nil {
		t.Fatal(err)
	}
	defer nl.Close()
	err = tryKernel(nl)
	need(t, err == nil, fmt.Sprintf("WireGuard in the kernel (%v)", err))
}

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{t: t}
	runtime.LockOSThread()
	own, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	h.ns, err = netns.New()
	if back := netns.Set(own); back != nil {
		t.Fatal(back) // the thread ends with its goroutine
	}
	runtime.UnlockOSThread()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.ns.Close() })
	if h.nl, err = netlink.NewHandleAt(h.ns, unix.NETLINK_ROUTE); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.nl.Close)
	h.up("lo")
	h.sysctl("net/ipv4/conf/all/rp_filter", "0")
	h.sysctl("net/ipv4/conf/default/rp_filter", "0")
	return h
}

func (h *host) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) sysctl(name, value string) {
	h.t.Helper()
	inside(h.t, h.ns, func() error { return os.WriteFile("/proc/sys/"+name, []byte(value), 0o644) })
}

func (h *host) link(name string) netlink.Link {
	h.t.Helper()
	l, err := h.nl.LinkByName(name)
	h.must(err)
	return l
}

func (h *host) up(name string) { h.t.Helper(); h.must(h.nl.LinkSetUp(h.link(name))) }

func (h *host) down(name string) { h.t.Helper(); h.must(h.nl.LinkSetDown(h.link(name))) }

func (h *host) address(name, addr string) {
	h.t.Helper()
	a, err := netlink.ParseAddr(addr)
	h.must(err)
	a.Flags = unix.IFA_F_NODAD // an IPv6 address is there at once
	h.must(h.nl.AddrReplace(h.link(name), a))
}

func (h *host) unaddress(name, addr string) {
	h.t.Helper()
	a, err := netlink.ParseAddr(addr)
	h.must(err)
	h.must(h.nl.AddrDel(h.link(name), a))
}

// route sends what is for dst by way of a router; table 0 is the main one.
func (h *host) route(dst, via, dev string, table int) {
	h.t.Helper()
	_, n, err := net.ParseCIDR(dst)
	h.must(err)
	h.must(h.nl.RouteReplace(&netlink.Route{Dst: n, Gw: net.ParseIP(via), LinkIndex: h.link(dev).Attrs().Index, Table: table}))
}

// connect joins two hosts with a link.
func connect(a *host, nameA, addrA string, b *host, nameB, addrB string) {
	a.t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = nameA
	a.must(a.nl.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: nameB, PeerNamespace: netlink.NsFd(b.ns)}))
	for _, e := range []struct {
		h          *host
		name, addr string
	}{{a, nameA, addrA}, {b, nameB, addrB}} {
		e.h.address(e.name, e.addr)
		e.h.up(e.name)
	}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, gateway: newHost(t), core: newHost(t), far: newHost(t)}
	connect(w.far, "eth0", "198.18.0.2/24", w.core, "c", "198.18.0.1/24")
	w.far.route("0.0.0.0/0", "198.18.0.1", "eth0", 0)
	w.core.sysctl("net/ipv4/ip_forward", "1")
	for i := range w.router {
		r := newHost(t)
		w.router[i] = r
		lan, wan := fmt.Sprintf("192.168.%d.", i+1), fmt.Sprintf("198.18.%d.", i+1)
		dev := fmt.Sprint("w", i)
		connect(w.gateway, dev, lan+"2/24", r, "lan", lan+"1/24")
		connect(r, "wan", wan+"2/24", w.core, fmt.Sprint("r", i), wan+"1/24")
		r.route("0.0.0.0/0", wan+"1", "wan", 0)
		r.sysctl("net/ipv4/ip_forward", "1")
		r.masquerade()
		w.gateway.route("0.0.0.0/0", lan+"1", dev, int(uplinks[i].Mark))
		rule := netlink.NewRule()
		rule.Family, rule.Mark, rule.Table, rule.Priority = netlink.FAMILY_V4, uplinks[i].Mark, int(uplinks[i].Mark), 1000+i
		w.gateway.must(w.gateway.nl.RuleAdd(rule))
	}
	w.gateway.route("0.0.0.0/0", "192.168.1.1", "w0", 0)
	return w
}

// rules are those of tunnels.
func (h *host) rules() (ours []netlink.Rule) {
	h.t.Helper()
	all, err := h.nl.RuleList(netlink.FAMILY_V4)
	h.must(err)
	for _, r := range all {
		if r.Priority == rulePriority {
			ours = append(ours, r)
		}
	}
	return ours
}

// masquerade gives what leaves by wan the router's address.
func (h *host) masquerade() {
	h.t.Helper()
	c, err := nftables.New(nftables.WithNetNSFd(int(h.ns)))
	h.must(err)
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "nat"})
	chain := c.AddChain(&nftables.Chain{Name: "post", Table: table, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource})
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, "wan")
	c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: name},
		&expr.Masq{},
	}})
	if err := c.Flush(); err != nil {
		need(h.t, false, fmt.Sprintf("nftables with masquerade (%v)", err))
	}
}

// echo answers every packet that comes to an address's port 7.
func (h *host) echo(addr netip.Addr) *net.UDPConn {
	h.t.Helper()
	c := h.listen(netip.AddrPortFrom(addr, 7))
	go func() {
		b := make([]byte, 64<<10)
		for {
			n, from, err := c.ReadFromUDPAddrPort(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				c.WriteToUDPAddrPort(b[:n], from)
			}
		}
	}()
	return c
}

func (h *host) listen(at netip.AddrPort) *net.UDPConn {
	h.t.Helper()
	var c *net.UDPConn
	inside(h.t, h.ns, func() (err error) {
		c, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at))
		return err
	})
	h.t.Cleanup(func() { c.Close() })
	return c
}

// ping sends packets of a size, ten a second, until one comes back, and returns
// how long that took, or an error after limit.
func (h *host) ping(from, to netip.Addr, size int, limit time.Duration) (time.Duration, error) {
	h.t.Helper()
	c := h.listen(netip.AddrPortFrom(from, 0))
	defer c.Close()
	begin := time.Now()
	out, in := make([]byte, size), make([]byte, 64<<10)
	var last error
	for time.Since(begin) < limit {
		if _, err := c.WriteToUDPAddrPort(out, netip.AddrPortFrom(to, 7)); err != nil {
			last = err
		}
		c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if n, _, err := c.ReadFromUDPAddrPort(in); err == nil && n == size {
			return time.Since(begin), nil
		}
	}
	return 0, fmt.Errorf("no echo of %d bytes from %s to %s within %v (%w)", size, from, to, limit, errors.Join(last, os.ErrDeadlineExceeded))
}
