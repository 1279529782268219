package underlay

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"sluice/uplink/paths"
	"sluice/uplink/steer"
	"sluice/uplink/tunnel"
)

func path(name string, index int, addrs ...string) paths.Path {
	p := paths.Path{Name: name, Index: index, MTU: 1500, Mark: uint32(0x2300 + index), Up: len(addrs) > 0}
	for _, a := range addrs {
		p.Addrs = append(p.Addrs, netip.MustParsePrefix(a))
	}
	return p
}

// place gives a path a way to a collector, empty for one that is not known yet.
func place(u *Underlay, p paths.Path, remote string) *way {
	w := newWay(u, p, func() {})
	u.ways[p.Name] = w
	if remote != "" {
		w.set(netip.MustParseAddrPort(remote), nil)
	}
	return w
}

func sized(w *way, mtu int) {
	w.mtu = mtu
	close(w.sized)
}

func TestWayServesItsPathWhileThatStaysAsItIs(t *testing.T) {
	base := path("wlan0", 3, "10.0.0.2/24")
	base.Gateways = []netip.Addr{netip.MustParseAddr("10.0.0.1")}
	for _, tt := range []struct {
		name   string
		change func(*paths.Path)
		want   bool
	}{
		{"the same", func(*paths.Path) {}, true},
		{"another preference", func(p *paths.Path) { p.Preference, p.Metered = 2, true }, true},
		{"down", func(p *paths.Path) { p.Up = false }, false},
		{"another name", func(p *paths.Path) { p.Name = "wlan1" }, false},
		{"the interface came anew", func(p *paths.Path) { p.Index = 4 }, false},
		{"another packet size", func(p *paths.Path) { p.MTU = 1400 }, false},
		{"another address (F21)", func(p *paths.Path) { p.Addrs = []netip.Prefix{netip.MustParsePrefix("10.0.0.3/24")} }, false},
		{"another router", func(p *paths.Path) { p.Gateways = nil }, false},
	} {
		now := base
		tt.change(&now)
		if got := newWay(nil, base, nil).serves(now); got != tt.want {
			t.Errorf("%s: serves is %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestWayStartsWithPacketsThatPassAnywhere(t *testing.T) {
	for link, want := range map[int]int{1500: 1280, 1280: 1280, 1000: 1000} {
		p := path("wlan0", 3)
		p.MTU = link
		if got := newWay(nil, p, nil).mtu; got != want {
			t.Errorf("link of %d bytes: got %d, want %d", link, got, want)
		}
	}
}

func TestSplit(t *testing.T) {
	for address, want := range map[string]struct {
		host string
		port uint16
	}{
		"collector.example.org:7443": {"collector.example.org", 7443},
		"[2001:db8::1]:7443":         {"2001:db8::1", 7443},
		"192.0.2.1":                  {"192.0.2.1", 0},
		"192.0.2.1:65536":            {"192.0.2.1", 0},
	} {
		if host, port := split(address); host != want.host || port != want.port {
			t.Errorf("%s: got %q and %d, want %q and %d", address, host, port, want.host, want.port)
		}
	}
}

// pair is a path's addresses in short, empty for none.
func pair(a steer.PathAddress) string {
	if !a.Remote.IsValid() {
		return ""
	}
	return a.Local.String() + " " + a.Remote.String()
}

func TestPathsOverBareLinks(t *testing.T) {
	wlan, wwan, eth := path("wlan0", 3, "10.0.0.2/24", "2001:db8::2/64"), path("wwan0", 4, "10.1.0.2/24"), path("eth0", 5)
	eth.Reason = paths.ReasonNoCarrier
	for _, tt := range []struct {
		name       string
		wlan, wwan string // the collector by each; empty while it is not known
		want       []string
	}{
		{"not resolved yet", "", "", []string{"", "", ""}},
		{"an address for each", "192.0.2.1:7443", "198.51.100.1:7443", []string{"10.0.0.2 192.0.2.1:7443", "10.1.0.2 198.51.100.1:7443", ""}},
		{"one address for both is one path", "192.0.2.1:7443", "192.0.2.1:7443", []string{"10.0.0.2 192.0.2.1:7443", "", ""}},
		{"the second is left if the first is not resolved", "", "192.0.2.1:7443", []string{"", "10.1.0.2 192.0.2.1:7443", ""}},
		{"by IPv6", "[2001:db8:1::1]:7443", "192.0.2.1:7443", []string{"2001:db8::2 [2001:db8:1::1]:7443", "10.1.0.2 192.0.2.1:7443", ""}},
		{"a path without the collector's family", "192.0.2.1:7443", "[2001:db8:1::1]:7443", []string{"10.0.0.2 192.0.2.1:7443", "", ""}},
	} {
		u := New(Options{})
		place(u, wlan, tt.wlan)
		place(u, wwan, tt.wwan)
		got := u.describe([]paths.Path{wlan, wwan, eth})
		for i, p := range got {
			if s := pair(p.SCTP); s != tt.want[i] {
				t.Errorf("%s: %s goes by %q, want %q", tt.name, p.Name, s, tt.want[i])
			}
			if p.Prober != nil {
				t.Errorf("%s: %s has a prober, want none", tt.name, p.Name)
			}
		}
		if p := got[2]; p.Up || p.Reason != paths.ReasonNoCarrier {
			t.Errorf("%s: eth0 is %+v, want it down for want of a carrier", tt.name, p)
		}
	}
}

func TestPathsOverTunnels(t *testing.T) {
	u := New(Options{Tunnels: &tunnel.Client{}})
	wlan, wwan := path("wlan0", 3, "10.0.0.2/24"), path("wwan0", 4, "10.1.0.2/24")
	place(u, wlan, "192.0.2.1:7443")
	place(u, wwan, "192.0.2.1:7443")
	u.tunnels = []tunnel.Tunnel{{Path: "wlan0", Local: netip.MustParseAddr("10.213.0.2"), Remote: netip.MustParseAddr("10.213.0.1")}}
	got := u.describe([]paths.Path{wlan, wwan})
	for i, want := range []string{"10.213.0.2 10.213.0.1:7443", ""} {
		if s := pair(got[i].SCTP); s != want {
			t.Errorf("%s goes by %q, want %q", got[i].Name, s, want)
		}
	}
}

// Each tunnel leads to the collector as its own path sees it, also while that looks
// it up anew.
func TestTunnelsLeadToTheirPathsCollector(t *testing.T) {
	u := New(Options{Tunnels: &tunnel.Client{}})
	wlan, wwan := path("wlan0", 3, "10.0.0.2/24"), path("wwan0", 4, "2001:db8::2/64")
	sized(place(u, wlan, "192.0.2.1:7443"), 1500)
	sized(place(u, wwan, "[2001:db8:1::1]:7443"), 1500)
	u.tunnels = []tunnel.Tunnel{{Path: "wlan0"}, {Path: "wwan0"}}
	for _, when := range []string{"at first", "after a change of its address"} {
		for i, want := range []string{"192.0.2.1", "2001:db8:1::1"} {
			if got := u.wanted([]paths.Path{wlan, wwan}).uplinks[i]; got.Endpoint.String() != want {
				t.Errorf("%s: the tunnel of %s leads to %v, want %s", when, got.Name, got.Endpoint, want)
			}
		}
		place(u, wwan, "")
	}
}

// What each of these begins with is wlan0 and wwan0, up, with the collector and
// the packet size known.
func TestWantedTunnels(t *testing.T) {
	type world struct {
		u     *Underlay
		paths []paths.Path
	}
	at := func(w *world, name string) *paths.Path {
		i := slices.IndexFunc(w.paths, func(p paths.Path) bool { return p.Name == name })
		return &w.paths[i]
	}
	for _, tt := range []struct {
		name     string
		change   func(w *world)
		uplinks  []string
		sizes    map[string]int
		endpoint bool
	}{
		{"both", func(*world) {}, []string{"wlan0", "wwan0"}, map[string]int{"wlan0": 1420, "wwan0": 1200}, true},
		{"one is not sized yet and has none", func(w *world) { place(w.u, *at(w, "wwan0"), "192.0.2.1:7443") },
			[]string{"wlan0"}, map[string]int{"wlan0": 1420}, true},
		{"one has another address and keeps its tunnel (F21)", func(w *world) {
			place(w.u, *at(w, "wwan0"), "")
			w.u.tunnels = []tunnel.Tunnel{{Path: "wwan0"}}
		}, []string{"wlan0", "wwan0"}, map[string]int{"wlan0": 1420}, true},
		{"one is down and keeps its tunnel", func(w *world) {
			delete(w.u.ways, "wwan0")
			w.u.tunnels = []tunnel.Tunnel{{Path: "wwan0"}}
		}, []string{"wlan0", "wwan0"}, map[string]int{"wlan0": 1420}, true},
		{"one is down and was never up: its packet size is not known", func(w *world) { delete(w.u.ways, "wwan0") },
			[]string{"wlan0"}, map[string]int{"wlan0": 1420}, true},
		{"one takes larger packets than tunnels have", func(w *world) { w.u.ways["wlan0"].mtu = 9000 },
			[]string{"wlan0", "wwan0"}, map[string]int{"wlan0": 1420, "wwan0": 1200}, true},
		{"one has no interface any more", func(w *world) { delete(w.u.ways, "wwan0"); at(w, "wwan0").Index = 0 },
			[]string{"wlan0"}, map[string]int{"wlan0": 1420}, true},
		{"nobody knows where to", func(w *world) { w.u.ways = map[string]*way{} }, nil, map[string]int{}, false},
		{"more than a gateway may have", func(w *world) {
			for i, name := range []string{"wwan1", "wwan2", "wwan3"} {
				p := path(name, 5+i, "10.2.0.2/24")
				w.paths = append(w.paths, p)
				sized(place(w.u, p, "192.0.2.1:7443"), 1280)
			}
			delete(w.u.ways, "wwan0") // and is down
			w.u.tunnels = []tunnel.Tunnel{{Path: "wwan0"}}
		}, []string{"wlan0", "wwan1", "wwan2", "wwan3"}, map[string]int{"wlan0": 1420, "wwan1": 1200, "wwan2": 1200, "wwan3": 1200}, true},
		{"and all of them up", func(w *world) {
			for i, name := range []string{"wwan1", "wwan2", "wwan3"} {
				p := path(name, 5+i, "10.2.0.2/24")
				w.paths = append(w.paths, p)
				sized(place(w.u, p, "192.0.2.1:7443"), 1280)
			}
		}, []string{"wlan0", "wwan0", "wwan1", "wwan2"}, map[string]int{"wlan0": 1420, "wwan0": 1200, "wwan1": 1200, "wwan2": 1200, "wwan3": 1200}, true},
	} {
		w := &world{u: New(Options{Tunnels: &tunnel.Client{}}), paths: []paths.Path{path("wlan0", 3, "10.0.0.2/24"), path("wwan0", 4, "10.1.0.2/24")}}
		sized(place(w.u, w.paths[0], "192.0.2.1:7443"), 1500)
		sized(place(w.u, w.paths[1], "192.0.2.1:7443"), 1280)
		tt.change(w)
		got := w.u.wanted(w.paths)
		var uplinks []string
		for _, l := range got.uplinks {
			if p := at(w, l.Name); l.Mark != p.Mark || l.MTU != p.MTU {
				t.Errorf("%s: %+v is not of %+v", tt.name, l, *p)
			}
			uplinks = append(uplinks, l.Name)
		}
		if !slices.Equal(uplinks, tt.uplinks) {
			t.Errorf("%s: tunnels for %v, want %v", tt.name, uplinks, tt.uplinks)
		}
		if !reflect.DeepEqual(got.sizes, tt.sizes) {
			t.Errorf("%s: sizes %v, want %v", tt.name, got.sizes, tt.sizes)
		}
		if got.endpoint.IsValid() != tt.endpoint {
			t.Errorf("%s: endpoint %v", tt.name, got.endpoint)
		}
	}
}
