package paths

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func testPlanner(patterns ...Pattern) *planner {
	return &planner{patterns: patterns, mark: 100, table: 200, priority: 300, ipv6: true, peers: map[string][]netip.Addr{}}
}

func anyRoute(index int, gateway string, metric int) route {
	r := route{to: netip.MustParsePrefix("0.0.0.0/0"), index: index, metric: metric}
	if gateway != "" {
		r.gateway = netip.MustParseAddr(gateway)
		if r.gateway.Is6() {
			r.to = netip.MustParsePrefix("::/0")
		}
	}
	return r
}

func TestReasons(t *testing.T) {
	on := link{index: 3, name: "wlan0", mtu: 1500, up: true, carrier: true}
	four := address{3, netip.MustParsePrefix("10.0.0.2/24")}
	six := address{3, netip.MustParsePrefix("2001:db8::2/64")}
	for _, c := range []struct {
		name string
		s    snapshot
		want string
	}{
		{"nothing", snapshot{}, ReasonNoInterface},
		{"off", snapshot{links: []link{{index: 3, name: "wlan0"}}}, ReasonDown},
		{"no carrier", snapshot{links: []link{{index: 3, name: "wlan0", up: true}}, addresses: []address{four}, routes: []route{anyRoute(3, "10.0.0.1", 0)}}, ReasonNoCarrier},
		{"no address", snapshot{links: []link{on}, addresses: []address{{4, four.prefix}}}, ReasonNoAddress},
		{"no route", snapshot{links: []link{on}, addresses: []address{four}}, ReasonNoRoute},
		{"another's route", snapshot{links: []link{on}, addresses: []address{four}, routes: []route{anyRoute(4, "10.0.0.1", 0)}}, ReasonNoRoute},
		{"route of the other family", snapshot{links: []link{on}, addresses: []address{four}, routes: []route{anyRoute(3, "fe80::1", 0)}}, ReasonNoRoute},
		{"up by IPv4", snapshot{links: []link{on}, addresses: []address{four, six}, routes: []route{anyRoute(3, "10.0.0.1", 0)}}, ""},
		{"up by IPv6", snapshot{links: []link{on}, addresses: []address{six}, routes: []route{anyRoute(3, "fe80::1", 1024)}}, ""},
		{"up without gateway", snapshot{links: []link{on}, addresses: []address{four}, routes: []route{anyRoute(3, "", 0)}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			paths, want := testPlanner(Pattern{Interface: "wlan0"}).plan(c.s)
			if len(paths) != 1 || paths[0].Reason != c.want || paths[0].Up != (c.want == "") {
				t.Fatalf("got %+v, want %q", paths, c.want)
			}
			// Whatever happens, nothing marked for the path leaves by another.
			for _, to := range []string{"0.0.0.0/0", "::/0"} {
				if !slices.Contains(want.routes, route{table: 200, to: netip.MustParsePrefix(to), metric: metricLast, unreachable: true}) {
					t.Errorf("%s is not unreachable in the end: %v", to, want.routes)
				}
			}
			for _, r := range want.routes {
				if !paths[0].Up && r.to.Bits() == 0 && !r.unreachable {
					t.Errorf("not up, but has %v", r)
				}
			}
		})
	}
}

// A table takes one route to a destination and metric, and the better one counts.
func TestSeveralGateways(t *testing.T) {
	s := snapshot{
		links:     []link{{index: 3, name: "wlan0", up: true, carrier: true}, {index: 5, name: "eth1"}},
		addresses: []address{{3, netip.MustParsePrefix("10.0.0.2/24")}},
		routes: []route{
			anyRoute(3, "10.0.0.9", 600), anyRoute(3, "10.0.0.1", 100), anyRoute(3, "10.0.0.7", 100),
			{to: netip.MustParsePrefix("10.0.0.0/24"), index: 5}, // the same network; ours comes first
			{to: netip.MustParsePrefix("10.50.0.0/24"), index: 5},
			{to: netip.MustParsePrefix("fe80::/64"), index: 5},
			{to: netip.MustParsePrefix("10.0.0.0/24"), index: 3},
			{to: netip.MustParsePrefix("192.0.2.0/24"), index: 3, gateway: netip.MustParseAddr("10.0.0.1")},
		},
	}
	paths, want := testPlanner(Pattern{Interface: "wlan0"}).plan(s)
	if got := fmt.Sprint(paths[0].Gateways); got != "[10.0.0.1 10.0.0.9]" {
		t.Errorf("gateways: got %s", got)
	}
	var got []string
	for _, r := range want.routes {
		got = append(got, r.String())
	}
	text := strings.Join(got, "\n")
	if want := `unreachable 0.0.0.0/0 table 200 metric 1073741824
unreachable ::/0 table 200 metric 1073741824
10.0.0.0/24 on interface 3 table 200 metric 0
10.50.0.0/24 on interface 5 table 200 metric 0
0.0.0.0/0 via 10.0.0.1 on interface 3 table 200 metric 100
0.0.0.0/0 via 10.0.0.9 on interface 3 table 200 metric 600`; text != want {
		t.Errorf("got:\n%s\nwant:\n%s", text, want)
	}
}

func TestRules(t *testing.T) {
	p := testPlanner(Pattern{Interface: "eth*"}, Pattern{Interface: "w*"})
	p.peers["wlan0"] = []netip.Addr{world4, world6}
	s := snapshot{
		links: []link{{index: 3, name: "wlan0"}, {index: 4, name: "eth1"}, {index: 1, name: "lo"}},
		addresses: []address{
			{3, netip.MustParsePrefix("2001:db8::2/64")}, {3, netip.MustParsePrefix("10.0.0.2/24")}, {3, netip.MustParsePrefix("10.0.0.2/16")},
		},
	}
	paths, want := p.plan(s)
	if len(paths) != 2 || paths[0].Name != "eth1" || paths[1].Name != "wlan0" || paths[1].Mark != 101 || paths[1].Table != 201 {
		t.Fatalf("got %+v, want eth1, then wlan0 with mark 101", paths)
	}
	var got []string
	for _, r := range want.rules {
		got = append(got, r.String())
	}
	text := strings.Join(got, "\n")
	if want := `IPv4 300: fwmark 0x64 lookup 200
IPv6 300: fwmark 0x64 lookup 200
IPv4 301: fwmark 0x65 lookup 201
IPv6 301: fwmark 0x65 lookup 201
IPv4 311: to 198.18.0.1 lookup 201
IPv6 311: to 2001:db8::1 lookup 201
IPv4 321: from 10.0.0.2 lookup 201
IPv6 321: from 2001:db8::2 lookup 201`; text != want {
		t.Errorf("got:\n%s\nwant:\n%s", text, want)
	}
	p.ipv6 = false
	if _, want := p.plan(s); slices.ContainsFunc(want.rules, func(r rule) bool { return r.ipv6 }) ||
		slices.ContainsFunc(want.routes, func(r route) bool { return r.to.Addr().Is6() }) {
		t.Errorf("a kernel without IPv6 gets %v", want)
	}
}

// Whatever comes and goes: no two uplinks share a mark, one that stays keeps its
// own, and as many as fit have one.
func TestSlotsProperty(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	p := testPlanner(Pattern{Interface: "wlan0"}, Pattern{Interface: "w*"})
	marks := map[string]uint32{} // of those that are there
	for step := range 500 {
		var s snapshot
		for i := range 12 {
			if random.IntN(2) == 0 {
				s.links = append(s.links, link{index: 100*step + i + 1, name: fmt.Sprintf("wlan%d", i)})
			}
		}
		paths, want := p.plan(s)
		seen := map[uint32]string{}
		there := map[string]uint32{}
		for _, path := range paths {
			if path.Mark == 0 {
				if path.Index != 0 && len(s.links) <= uplinksMost {
					t.Fatalf("step %d: %s has no mark, though only %d interfaces are there", step, path.Name, len(s.links))
				}
				if path.Index != 0 && path.Reason != ReasonTooMany {
					t.Fatalf("step %d: %s: got %q, want %q", step, path.Name, path.Reason, ReasonTooMany)
				}
				continue
			}
			if other, taken := seen[path.Mark]; taken {
				t.Fatalf("step %d: %s and %s have mark %d", step, path.Name, other, path.Mark)
			}
			seen[path.Mark] = path.Name
			if before, ok := marks[path.Name]; ok && path.Index != 0 && before != path.Mark {
				t.Fatalf("step %d: the mark of %s changed from %d to %d", step, path.Name, before, path.Mark)
			}
			if path.Index != 0 {
				there[path.Name] = path.Mark
			}
		}
		marks = there
		for i, r := range want.rules {
			if slices.Contains(want.rules[:i], r) {
				t.Fatalf("step %d: rule %v twice", step, r)
			}
		}
		if len(paths) > 12 {
			t.Fatalf("step %d: %d paths of 12 interfaces", step, len(paths))
		}
	}
}

func TestOptions(t *testing.T) {
	good := []Pattern{{Interface: "wlan*"}}
	for _, c := range []struct {
		opt  Options
		want string // in the error; empty for none
	}{
		{Options{Patterns: good}, ""},
		{Options{Patterns: good, Table: 240}, ""},
		{Options{}, "no interface"},
		{Options{Patterns: []Pattern{{Interface: "wlan["}}}, `"wlan["`},
		{Options{Patterns: []Pattern{{}}}, `""`},
		{Options{Patterns: good, Table: 250}, "tables from 250"},
		{Options{Patterns: good, Table: -1}, "tables from -1"},
		{Options{Patterns: good, Priority: 32750}, "priorities from 32750"},
	} {
		_, err := c.opt.normalise()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: got %v, want %q", c.opt, err, c.want)
		}
	}
}
