package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"sluice/admin"
	"sluice/lab/topology"
)

// bothPaths is true once SCTP carries and could use either path.
func bothPaths(s admin.Status) bool {
	return s.Uplink.Carrier == "sctp" && usable(s, "wlan0") && usable(s, "wwan0")
}

// F19: one router on each path passes packets of up to 1280 bytes only, and its
// word on that is lost.
func TestField19SmallPacketsOnly(t *testing.T) {
	needSCTP(t)
	for _, u := range underlays() {
		t.Run(u.name, func(t *testing.T) {
			network, o := twoLinks(t, u)
			for _, p := range network.Paths {
				must(t, errors.Join(p.Middle.A.SetMTU(1280), p.Middle.B.SetMTU(1280), p.Access.Drop(topology.ICMP), p.Exit.Drop(topology.ICMP)))
			}
			b := newBench(t, o)
			b.start()
			load := b.load(100, 0)
			b.await("SCTP carries", bothPaths)
			b.watch("small packets only", 3*time.Second, time.Second)
			b.check(load)
		})
	}
}

// F20: behind two NATs, SCTP and then UDP are dropped: TCP carries, and the
// status says why and when the better way is tried again; it is, once it is there.
func TestField20SCTPAndUDPDropped(t *testing.T) {
	needSCTP(t)
	network, o := twoLinks(t, tunnels())
	for _, p := range network.Paths {
		must(t, p.Masquerade())
	}
	b := newBench(t, o)
	b.start()
	load := b.load(100, 0)
	drop := func(protocols ...topology.Protocol) {
		for _, p := range network.Paths {
			b.must(p.Drop(protocols...))
		}
	}
	b.await("SCTP carries", bothPaths)
	drop(topology.SCTP) // it goes through tunnels, so nobody minds
	b.watch("SCTP dropped", 2*time.Second, time.Second)
	drop(topology.SCTP, topology.UDP)
	b.watch("SCTP and UDP dropped", 5*time.Second, 3*time.Second)
	b.await("TCP carries, and it is said why", func(s admin.Status) bool {
		u := s.Uplink
		return u.Carrier == "tcp" && u.Underlay == "bare" && strings.Contains(u.Choice, "SCTP") && !u.NextTry.IsZero()
	})
	drop()
	b.await("SCTP carries again", func(s admin.Status) bool { return s.Uplink.Carrier == "sctp" })
	b.check(load)
}

// F21: under load one link's address is renewed, and a NAT forgets its ports.
func TestField21AddressRenewed(t *testing.T) {
	needSCTP(t)
	for _, u := range underlays() {
		t.Run(u.name, func(t *testing.T) {
			network, o := twoLinks(t, u)
			if !u.own {
				for _, p := range network.Paths {
					must(t, p.Masquerade())
				}
			}
			b := newBench(t, o)
			b.start()
			load := b.load(100, 0)
			b.await("SCTP carries", bothPaths)
			p := network.Paths[0]
			b.must(errors.Join(p.Access.A.Renumber(netip.PrefixFrom(p.Access.A.Address().Next(), 24)), p.Join(network)))
			b.watch("address renewed", 8*time.Second, 2*time.Second)
			b.await("both paths are there again", bothPaths)
			if !u.own {
				b.must(p.Near.Rebind())
				b.watch("ports rebound", 4*time.Second, 2*time.Second)
			}
			b.check(load)
		})
	}
}

// Either end's power is taken away with tunnels up: both find each other again,
// and nothing is left over, twice or at the end.
func TestKillWithTunnels(t *testing.T) {
	needSCTP(t)
	network, o := twoLinks(t, tunnels())
	before := configuration(t, network.Gateway)
	b := newBench(t, o)
	b.start()
	load := b.load(100, 0)
	b.await("SCTP carries", bothPaths)
	running := len(configuration(t, network.Gateway))
	b.killGateway()
	b.must(b.site.StartGateway(b.ctx))
	b.await("SCTP carries after the gateway was killed", bothPaths)
	if now := configuration(t, network.Gateway); len(now) != running {
		t.Errorf("after the gateway was killed and started again, its system has\n%s", strings.Join(now, "\n"))
	}
	b.killCollector()
	b.must(b.site.StartCollector(b.ctx))
	b.await("SCTP carries after the collector was killed", bothPaths)
	b.watch("both have been killed", 2*time.Second, 2*time.Second)
	b.check(load)
	if left := configuration(t, network.Gateway); strings.Join(left, "\n") != strings.Join(before, "\n") {
		t.Errorf("the gateway has ended, and its system has\n%s\nbefore it was\n%s", strings.Join(left, "\n"), strings.Join(before, "\n"))
	}
}

// configuration is what a gateway changes of its system: devices, rules and
// routes, each in a line, without the addresses and numbers of devices.
func configuration(t *testing.T, h *topology.Host) (lines []string) {
	t.Helper()
	must(t, h.Do(func() error {
		links, err := netlink.LinkList()
		if err != nil {
			return err
		}
		for _, l := range links {
			lines = append(lines, "device "+l.Attrs().Name)
		}
		rules, err := netlink.RuleList(netlink.FAMILY_V4)
		if err != nil {
			return err
		}
		for _, r := range rules {
			lines = append(lines, fmt.Sprintf("rule %d: mark %#x from %v to table %d", r.Priority, r.Mark, r.Src, r.Table))
		}
		routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return err
		}
		for _, r := range routes {
			if r.Table != unix.RT_TABLE_LOCAL {
				lines = append(lines, fmt.Sprintf("route to %v via %v table %d", r.Dst, r.Gw, r.Table))
			}
		}
		return nil
	}))
	return lines
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
