package paths

import (
	"context"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

var (
	wifi4 = netip.MustParsePrefix("10.1.0.0/24")
	wifi6 = netip.MustParsePrefix("fd00:1::/64")
	lte4  = netip.MustParsePrefix("10.2.0.0/24")
	lte6  = netip.MustParsePrefix("fd00:2::/64")
)

func two(t *testing.T) (wifi, lte *uplink) {
	t.Helper()
	return newUplink(t, "wlan7", wifi4, wifi6, 100), newUplink(t, "wwan7", lte4, lte6, 200)
}

func options() Options {
	return Options{Patterns: []Pattern{{Interface: "wlan*"}, {Interface: "wwan*", Metered: true}}}
}

func both(paths []Path) bool { return len(paths) == 2 && paths[0].Up && paths[1].Up }

// Each socket leaves by its path: bound to it, marked for it as a kernel tunnel's
// is, or only from its address; the others as the main table says.
func TestPacketsLeaveByTheirPath(t *testing.T) {
	if !isolated(t) {
		return
	}
	two(t)
	m := run(t, options())
	paths := m.await("both up", both)
	for _, p := range paths {
		for _, world := range []netip.Addr{world4, world6} {
			local := &net.TCPAddr{IP: ip(p.Addrs[map[bool]int{true: 0, false: 1}[world.Is4()]].Addr())}
			marked := func(_ context.Context, _, _ string, c syscall.RawConn) error {
				return c.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, int(p.Mark)) })
			}
			for name, dialer := range map[string]net.Dialer{
				"bound":        {ControlContext: m.Control(p.Name)},
				"marked":       {ControlContext: marked},
				"from address": {LocalAddr: local},
				"both":         {ControlContext: m.Control(p.Name), LocalAddr: local},
			} {
				if got := who(dialer, world); got != p.Name {
					t.Errorf("%s, %s, to %s: went by %s", p.Name, name, world, got)
				}
			}
		}
	}
	for _, world := range []netip.Addr{world4, world6} {
		if got := who(net.Dialer{}, world); got != "wlan7" {
			t.Errorf("unbound to %s: went by %s, not as the main table prefers", world, got)
		}
		if err := m.RouteVia("wwan7", []netip.Addr{world4, world6, world4}); err != nil {
			t.Fatal(err)
		}
		if got := who(net.Dialer{}, world); got != "wwan7" {
			t.Errorf("unbound to the peer %s of wwan7: went by %s", world, got)
		}
		if got := who(net.Dialer{ControlContext: m.Control("wlan7")}, world); got != "wlan7" {
			t.Errorf("bound to wlan7, to the peer %s of wwan7: went by %s", world, got)
		}
		// The latest call has it.
		if err := m.RouteVia("wlan7", []netip.Addr{world4}); err != nil {
			t.Fatal(err)
		}
		if got := who(net.Dialer{}, world4); got != "wlan7" {
			t.Errorf("unbound to the peer %s, moved to wlan7: went by %s", world4, got)
		}
		for _, name := range []string{"wlan7", "wwan7"} {
			if err := m.RouteVia(name, nil); err != nil {
				t.Fatal(err)
			}
		}
		if got := who(net.Dialer{}, world); got != "wlan7" {
			t.Errorf("unbound to %s, a peer no more: went by %s", world, got)
		}
	}
	if err := m.RouteVia("eth0", nil); err == nil {
		t.Error("peers via an interface that no pattern names: got no error")
	}
	if got := who(net.Dialer{ControlContext: m.Control("wwan8")}, world4); !strings.Contains(got, ReasonNoInterface) {
		t.Errorf("bound to an interface that does not exist: got %q", got)
	}
}

// What belongs to a path that leads nowhere goes nowhere, rather than by another.
func TestDeadPathDoesNotFallThrough(t *testing.T) {
	if !isolated(t) {
		return
	}
	wifi, _ := two(t)
	m := run(t, options())
	m.await("both up", both)
	mark := func(_ context.Context, _, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, 0x2300) })
	}
	for _, step := range []struct {
		reason string
		break_ func()
		repair func()
	}{
		{ReasonNoCarrier, func() { wifi.carrier(false) }, func() {
			wifi.carrier(true)
			wifi.address(wifi4, wifi6) // the router's is gone
			wifi.defaults()
		}},
		{ReasonDown, func() { wifi.must(netlink.LinkSetDown(wifi.link())) }, func() {
			wifi.must(netlink.LinkSetUp(wifi.link()))
			wifi.address(wifi4, wifi6) // ours
			wifi.defaults()
		}},
		{ReasonNoRoute, func() {
			for _, gw := range []netip.Addr{wifi.gw4, wifi.gw6} {
				wifi.must(netlink.RouteDel(&netlink.Route{Dst: anywhere(gw.Is6()), Gw: ip(gw), LinkIndex: wifi.link().Attrs().Index, Priority: wifi.metric}))
			}
		}, wifi.defaults},
		{ReasonNoAddress, func() {
			for _, n := range []netip.Prefix{wifi4, wifi6} {
				wifi.must(netlink.AddrDel(wifi.link(), address4(netip.PrefixFrom(n.Addr().Next().Next(), n.Bits()))))
			}
		}, func() { wifi.address(wifi4, wifi6); wifi.defaults() }},
		{ReasonNoInterface, func() { wifi.must(netlink.LinkDel(wifi.link())) }, func() {
			wifi.create()
			wifi.address(wifi4, wifi6)
			wifi.defaults()
		}},
	} {
		step.break_()
		m.reason("wlan7", step.reason)
		for _, world := range []netip.Addr{world4, world6} {
			if got := who(net.Dialer{ControlContext: mark}, world); !strings.Contains(got, "unreachable") && !strings.Contains(got, "no route to host") {
				t.Errorf("%s: marked for wlan7, to %s: got %q, want it refused at once", step.reason, world, got)
			}
			if got := who(net.Dialer{ControlContext: m.Control("wwan7")}, world); got != "wwan7" {
				t.Errorf("%s: bound to wwan7, to %s: got %q", step.reason, world, got)
			}
		}
		step.repair()
		m.reason("wlan7", "")
		m.await("both families", func(paths []Path) bool { return len(paths[0].Addrs) == 2 && len(paths[0].Gateways) == 2 })
		for _, world := range []netip.Addr{world4, world6} {
			if got := who(net.Dialer{ControlContext: m.Control("wlan7")}, world); got != "wlan7" {
				t.Errorf("%s repaired: bound to wlan7, to %s: got %q", step.reason, world, got)
			}
		}
	}
}

// F21: the rules follow an address within a second, and the table the gateway.
func TestAddressChange(t *testing.T) {
	if !isolated(t) {
		return
	}
	wifi, _ := two(t)
	m := run(t, options())
	m.await("both up", both)
	renewed := netip.MustParsePrefix("10.9.0.0/24")
	wifi.address(renewed, netip.Prefix{})
	wifi.must(netlink.AddrDel(wifi.link(), address4(netip.MustParsePrefix("10.1.0.2/24"))))
	wifi.gw4 = renewed.Addr().Next()
	wifi.defaults()
	began := time.Now()
	want := netip.MustParseAddr("10.9.0.2")
	m.await("new address", func(paths []Path) bool {
		return paths[0].Up && paths[0].Addrs[0].Addr() == want && paths[0].Gateways[0] == wifi.gw4
	})
	if took := time.Since(began); took > patient(time.Second) {
		t.Errorf("took %v, want a second at most", took)
	}
	for name, dialer := range map[string]net.Dialer{
		"bound":        {ControlContext: m.Control("wlan7")},
		"from address": {LocalAddr: &net.TCPAddr{IP: ip(want)}},
	} {
		if got := who(dialer, world4); got != "wlan7" {
			t.Errorf("%s: went by %s", name, got)
		}
	}
	if s := state(t); strings.Contains(s, "10.1.0.") {
		t.Errorf("the old address is still there:\n%s", s)
	}
}

// Who asks for an uplink's address from a network that is no uplink gets his
// answer there, whether or not the uplink leads anywhere.
func TestAnswersLocalNetwork(t *testing.T) {
	if !isolated(t) {
		return
	}
	wifi, _ := two(t)
	lan := newUplink(t, "eth7", netip.MustParsePrefix("10.50.0.0/24"), netip.MustParsePrefix("fd00:50::/64"), 900)
	for _, gateway := range []string{"10.50.0.2", "fd00:50::2"} {
		gw := netip.MustParseAddr(gateway)
		lan.must(lan.router.RouteAdd(&netlink.Route{Dst: anywhere(gw.Is6()), Gw: ip(gw)}))
	}
	ln, err := net.Listen("tcp", ":9")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	m := run(t, options())
	m.await("both up", both)
	ask := func(when string) {
		for _, address := range []string{"10.1.0.2:9", "[fd00:1::2]:9"} {
			lan.in(func() error {
				c, err := net.DialTimeout("tcp", address, 2*time.Second)
				if err != nil {
					t.Errorf("%s: %v", when, err)
					return nil
				}
				return c.Close()
			})
		}
	}
	ask("up")
	wifi.carrier(false)
	m.reason("wlan7", ReasonNoCarrier)
	ask("no carrier")
}

// A link without a gateway, such as PPP, has a default route all the same.
func TestPointToPoint(t *testing.T) {
	if !isolated(t) {
		return
	}
	newUplink(t, "wlan7", wifi4, netip.Prefix{}, 100)
	lte := newUplink(t, "wwan7", lte4, netip.Prefix{}, 200)
	lte.must(netlink.RouteReplace(&netlink.Route{Dst: anywhere(false), LinkIndex: lte.link().Attrs().Index, Priority: 200, Scope: netlink.SCOPE_LINK}))
	m := run(t, options())
	paths := m.await("both up", both)
	if got := paths[1].Gateways; got != nil {
		t.Errorf("gateways: got %v, want none", got)
	}
	if got := who(net.Dialer{ControlContext: m.Control("wwan7")}, world4); got != "wwan7" {
		t.Errorf("bound to wwan7: went by %s", got)
	}
	if !paths[1].Metered || paths[0].Metered || paths[0].Preference != 0 || paths[1].Preference != 1 || paths[0].MTU != 1500 {
		t.Errorf("got %+v", paths)
	}
}

// Two sticks of a kind give the gateway the same address and gateway; bound
// sockets tell them apart all the same.
func TestTwinModems(t *testing.T) {
	if !isolated(t) {
		return
	}
	stick := netip.MustParsePrefix("192.168.8.0/24")
	newUplink(t, "wwan7", stick, netip.Prefix{}, 100)
	newUplink(t, "wwan8", stick, netip.Prefix{}, 200)
	m := run(t, options())
	m.await("both up", both)
	for _, name := range []string{"wwan7", "wwan8"} {
		if got := who(net.Dialer{ControlContext: m.Control(name)}, world4); got != name {
			t.Errorf("bound to %s: went by %s", name, got)
		}
	}
}

// At the end everything is as it was, and what others had put next to ours is
// still there.
func TestCleansUp(t *testing.T) {
	if !isolated(t) {
		return
	}
	wifi, lte := two(t)
	wifi.must(writeFilter("wlan7", "1"))
	wifi.must(writeFilter("wwan7", "2"))
	foreign := netlink.NewRule()
	foreign.Priority, foreign.Table, foreign.Mark = 2301, 2301, 0x77
	wifi.must(netlink.RuleAdd(foreign))
	wifi.must(netlink.RouteAdd(&netlink.Route{Dst: ipNet(netip.MustParsePrefix("203.0.113.0/24")), Gw: ip(lte.gw4), Table: 2301}))
	before := state(t)
	m := run(t, options())
	m.await("both up", both)
	if err := m.RouteVia("wwan7", []netip.Addr{world4, world6}); err != nil {
		t.Fatal(err)
	}
	during := state(t)
	for _, want := range []string{"mark 0x2300", "mark 0x2301", "from 10.1.0.2/32", "to 198.18.0.1/32", "table 2300"} {
		if !strings.Contains(during, want) {
			t.Errorf("%q is missing from\n%s", want, during)
		}
	}
	for _, name := range []string{"wlan7", "wwan7"} {
		if got, err := readFilter(name); got != "0" || err != nil {
			t.Errorf("reverse-path filter of %s: got %s, %v, want 0", name, got, err)
		}
	}
	m.stop()
	if after := state(t); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	for name, want := range map[string]string{"wlan7": "1", "wwan7": "2"} {
		if got, err := readFilter(name); got != want || err != nil {
			t.Errorf("reverse-path filter of %s afterwards: got %s, %v, want %s", name, got, err, want)
		}
	}
	if err := m.RouteVia("wwan7", nil); err == nil {
		t.Error("route after the end: got no error")
	}
}

// A process that was killed leaves its tables; the next one takes them over,
// removes what no longer holds, and leaves nothing behind.
func TestTakesOverAfterKill(t *testing.T) {
	if role := os.Getenv("SLUICE_TEST_VICTIM"); role != "" {
		m, err := New(options())
		if err != nil {
			t.Fatal(err)
		}
		t.Fatal(m.Run(context.Background()))
	}
	if !isolated(t) {
		return
	}
	wifi, lte := two(t)
	wifi.must(writeFilter("default", "2"))
	wifi.must(writeFilter("wlan7", "2"))
	before := state(t)
	for range 3 {
		kill(t, func() bool {
			return strings.Contains(state(t), "from fd00:2::2/128") && strings.Contains(state(t), "mark 0x2301")
		})
	}
	if !strings.Contains(state(t), "mark 0x2300") {
		t.Fatal("nothing is left over")
	}
	lte.must(netlink.LinkDel(lte.link()))
	lte.create()
	lte.address(netip.MustParsePrefix("10.7.0.0/24"), netip.Prefix{})
	lte.gw4, lte.gw6 = netip.MustParseAddr("10.7.0.1"), netip.Addr{}
	lte.defaults()
	m := run(t, options())
	m.await("both up", both)
	if s := state(t); strings.Contains(s, "10.2.0.2") || strings.Contains(s, "fd00:2::2") || !strings.Contains(s, "from 10.7.0.2/32") {
		t.Errorf("after the change:\n%s", s)
	}
	for _, name := range []string{"wlan7", "wwan7"} {
		if got := who(net.Dialer{ControlContext: m.Control(name)}, world4); got != name {
			t.Errorf("bound to %s: went by %s", name, got)
		}
	}
	m.stop()
	if s := state(t); strings.Contains(s, "protocol 213") || strings.Contains(s, "0x230") {
		t.Errorf("left over:\n%s", s)
	}
	if strings.Count(before, "\n") < 10 {
		t.Errorf("the state before says nothing:\n%s", before)
	}
	if got, err := readFilter("wlan7"); got != "2" || err != nil {
		t.Errorf("reverse-path filter: got %s, %v, want what the default is, 2", got, err)
	}
}

// F17: whatever the link does, the latest state is reported within a second.
func TestFlapping(t *testing.T) {
	if !isolated(t) {
		return
	}
	wifi, _ := two(t)
	m := run(t, options())
	m.await("both up", both)
	for range 10 {
		wifi.carrier(false)
		m.reason("wlan7", ReasonNoCarrier)
		wifi.carrier(true)
		wifi.defaults()
		p := m.reason("wlan7", "")
		if p.Mark != 0x2300 || p.Table != 2300 {
			t.Errorf("got %+v, want the mark kept", p)
		}
	}
	// An interface that comes back has another index, and the same mark.
	index := m.reason("wlan7", "").Index
	for range 3 {
		wifi.must(netlink.LinkDel(wifi.link()))
		if p := m.reason("wlan7", ReasonNoInterface); p.Mark != 0x2300 {
			t.Errorf("got %+v, want the mark kept", p)
		}
		wifi.create()
		wifi.address(wifi4, wifi6)
		wifi.defaults()
		p := m.reason("wlan7", "")
		if p.Index == index || p.Mark != 0x2300 || p.Table != 2300 {
			t.Errorf("got %+v, want another index than %d and the mark kept", p, index)
		}
		index = p.Index
		if got, err := readFilter("wlan7"); got != "0" || err != nil {
			t.Errorf("reverse-path filter: got %s, %v, want 0", got, err)
		}
		if got := who(net.Dialer{ControlContext: m.Control("wlan7")}, world4); got != "wlan7" {
			t.Errorf("bound to wlan7: went by %s", got)
		}
	}
}

// A burst of changes ends in the right state, and is not followed one by one.
func TestBurst(t *testing.T) {
	if !isolated(t) {
		return
	}
	wifi, lte := two(t)
	m := run(t, options())
	m.await("both up", both)
	for i := range 100 {
		a := address4(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 5, byte(i), 2}), 24))
		wifi.must(netlink.AddrAdd(wifi.link(), a))
		if i != 99 {
			wifi.must(netlink.AddrDel(wifi.link(), a))
		}
		lte.must(netlink.LinkSetMTU(lte.link(), 1400+i%2))
	}
	m.await("settled", func(paths []Path) bool {
		return len(paths[0].Addrs) == 3 && paths[0].Addrs[1].String() == "10.5.99.2/24" && paths[1].MTU == 1401
	})
	s := state(t)
	if got := strings.Count(s, "from 10.5."); got != 1 {
		t.Errorf("got %d rules of the burst, want 1:\n%s", got, s)
	}
	for _, name := range []string{"wlan7", "wwan7"} {
		if got := who(net.Dialer{ControlContext: m.Control(name)}, world4); got != name {
			t.Errorf("bound to %s: went by %s", name, got)
		}
	}
	quiet(t)
}

// Whatever form a default route has in the main table, it has in the path's: a
// gateway outside the network, an MTU, an IPv6 gateway for IPv4, several hops, or
// several gateways. What is installed is found again as it should be, or it would
// be installed for ever.
func TestFormsOfRoutes(t *testing.T) {
	if !isolated(t) {
		return
	}
	wifi, lte := two(t)
	m := run(t, options())
	m.await("both up", both)
	index, other := wifi.link().Attrs().Index, lte.link().Attrs().Index
	far := netip.MustParseAddr("172.16.9.9")
	wifi.must(wifi.router.AddrAdd(wifi.lan(), address4(netip.PrefixFrom(far, 32))))
	clear := func() {
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			routes, err := netlink.RouteList(wifi.link(), family)
			wifi.must(err)
			for _, r := range routes {
				if ones, _ := r.Dst.Mask.Size(); ones == 0 {
					wifi.must(netlink.RouteDel(&r))
				}
			}
		}
		m.reason("wlan7", ReasonNoRoute)
	}
	for _, c := range []struct {
		name  string
		world netip.Addr
		route netlink.Route
		want  string // in the path's table
	}{
		{"gateway outside", world4, netlink.Route{Dst: anywhere(false), Gw: ip(far), LinkIndex: index, Flags: unix.RTNH_F_ONLINK}, "via 172.16.9.9 on 2 table 2300"},
		{"MTU", world4, netlink.Route{Dst: anywhere(false), Gw: ip(wifi.gw4), LinkIndex: index, MTU: 1280, Priority: 7}, "table 2300 metric 7"},
		{"source", world4, netlink.Route{Dst: anywhere(false), Gw: ip(wifi.gw4), LinkIndex: index, Src: net.IPv4(10, 1, 0, 2)}, "via 10.1.0.1 on 2 table 2300"},
		{"IPv4 by IPv6", world4, netlink.Route{Dst: anywhere(false), LinkIndex: index, Via: &netlink.Via{AddrFamily: unix.AF_INET6, Addr: ip(wifi.gw6)}}, "route 0.0.0.0/0 via <nil> on 2 table 2300"},
		{"several hops", world4, netlink.Route{Dst: anywhere(false), MultiPath: []*netlink.NexthopInfo{{LinkIndex: index, Gw: ip(wifi.gw4)}, {LinkIndex: other, Gw: ip(lte.gw4)}}}, "via 10.1.0.1 on 2 table 2300"},
		{"IPv6, MTU", world6, netlink.Route{Dst: anywhere(true), Gw: ip(wifi.gw6), LinkIndex: index, MTU: 1280}, "via fd00:1::1 on 2 table 2300 metric 1024"},
		{"IPv6, several hops", world6, netlink.Route{Dst: anywhere(true), MultiPath: []*netlink.NexthopInfo{{LinkIndex: index, Gw: ip(wifi.gw6)}, {LinkIndex: other, Gw: ip(lte.gw6)}}}, "via fd00:1::1 on 2 table 2300"},
	} {
		clear()
		wifi.must(netlink.RouteAdd(&c.route))
		m.reason("wlan7", "")
		if s := state(t); !strings.Contains(s, c.want) {
			t.Errorf("%s: %q is missing from\n%s", c.name, c.want, s)
		}
		if got := who(net.Dialer{ControlContext: m.Control("wlan7")}, c.world); got != "wlan7" {
			t.Errorf("%s: went by %s", c.name, got)
		}
		quiet(t)
		if c.route.MultiPath != nil {
			wifi.must(netlink.RouteDel(&c.route))
			m.reason("wlan7", ReasonNoRoute)
		}
	}
}

// Somebody removes what is ours: it is put back.
func TestRepairs(t *testing.T) {
	if !isolated(t) {
		return
	}
	two(t)
	m := run(t, options())
	m.await("both up", both)
	want := state(t)
	rules, err := netlink.RuleList(netlink.FAMILY_V4)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules {
		if r.Protocol == protocol {
			if err := netlink.RuleDel(&r); err != nil {
				t.Fatal(err)
			}
		}
	}
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_V6, &netlink.Route{}, netlink.RT_FILTER_TABLE)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range routes {
		if r.Protocol == protocol && r.Type == unix.RTN_UNICAST {
			if err := netlink.RouteDel(&r); err != nil {
				t.Fatal(err)
			}
		}
	}
	limit := time.Now().Add(patient(5 * time.Second))
	for state(t) != want {
		if time.Now().After(limit) {
			t.Fatalf("want:\n%s\ngot:\n%s", want, state(t))
		}
		<-time.After(10 * time.Millisecond)
	}
}

// F16: one uplink is associated but dead. Names are asked over each path, at the
// path's own servers, and the dead one keeps nobody but itself waiting.
func TestNamesByPath(t *testing.T) {
	if !isolated(t) {
		return
	}
	wifi, lte := two(t)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"wlan7": "nameserver 198.18.0.1\n",
		"wwan7": "# from DHCP\nsearch example.org\nnameserver 127.0.0.53\nnameserver 198.18.0.1\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name+".conf"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	opt := options()
	opt.ResolvConf = filepath.Join(dir, "*.conf")
	m := run(t, opt)
	m.await("both up", both)
	for name, want := range map[string]netip.Addr{"wlan7": wifi.gw4, "wwan7": lte.gw4} {
		got, err := m.LookupNetIP(t.Context(), name, "collector.example.org")
		if err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("over %s: got %v, %v, want %v", name, got, err, want)
		}
	}
	if got, err := m.LookupNetIP(t.Context(), "wlan7", "192.0.2.7"); err != nil || got[0].String() != "192.0.2.7" {
		t.Errorf("an address: got %v, %v", got, err)
	}

	wifi.dead()
	type result struct {
		took time.Duration
		err  error
	}
	slow := make(chan result, 2)
	began := time.Now()
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := m.LookupNetIP(ctx, "wlan7", "collector.example.org")
		slow <- result{time.Since(began), err}
	}()
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		d := net.Dialer{ControlContext: m.Control("wlan7")}
		_, err := d.DialContext(ctx, "tcp", "198.18.0.1:7")
		slow <- result{time.Since(began), err}
	}()
	got, err := m.LookupNetIP(t.Context(), "wwan7", "collector.example.org")
	if err != nil || len(got) != 1 || got[0] != lte.gw4 {
		t.Errorf("over wwan7 while wlan7 is dead: got %v, %v", got, err)
	}
	if by := who(net.Dialer{ControlContext: m.Control("wwan7")}, world4); by != "wwan7" {
		t.Errorf("bound to wwan7: went by %s", by)
	}
	if took := time.Since(began); took > patient(1500*time.Millisecond) {
		t.Errorf("name and connection over wwan7 took %v", took)
	}
	for range 2 {
		if r := <-slow; r.err == nil || r.took > patient(4*time.Second) {
			t.Errorf("over the dead wlan7: got %v after %v, want an error after 2 s", r.err, r.took)
		}
	}
	if p := m.reason("wlan7", ""); !p.Up {
		t.Error("the kernel does not see that a path leads nowhere; this is the prober's business")
	}
}

// The subscription outlives a flood that the kernel cuts.
func TestWakeOutlivesFlood(t *testing.T) {
	if !isolated(t) {
		return
	}
	w, err := newWake()
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	raw, err := w.file.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 1) })
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		for i := range 200 {
			a := address4(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 5, byte(i), 2}), 24))
			if err := netlink.AddrReplace(lo, a); err != nil {
				t.Fatal(err)
			}
			if err := netlink.AddrDel(lo, a); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case <-w.woken:
		case <-time.After(patient(time.Second)):
			t.Fatal("not woken")
		}
	}
}
