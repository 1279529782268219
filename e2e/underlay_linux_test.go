package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
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

// inTunnels is true once SCTP carries in the tunnels of both paths.
func inTunnels(s admin.Status) bool { return bothPaths(s) && s.Uplink.Underlay == "tunnel" }

// tcpInstead is true once TCP carries in SCTP's place, and it is said why, and
// when SCTP is tried again.
func tcpInstead(s admin.Status) bool {
	u := s.Uplink
	return u.Up && u.Carrier == "tcp" && u.Underlay == "bare" && strings.Contains(u.Choice, "SCTP") && u.NextTry.After(s.Time)
}

// F19: one router on each path passes packets of up to 1280 bytes only, and its
// word on that is lost.
func TestField19SmallPacketsOnly(t *testing.T) {
	needSCTP(t)
	const within = 10 * time.Second
	for _, u := range append(underlays(), underlay{name: "tcp", uplink: `carrier = "tcp"`}) {
		t.Run(u.name, func(t *testing.T) {
			network, o := twoLinks(t, u)
			o.Flush = 500 * time.Millisecond // for frames of more than one packet
			for _, p := range network.Paths {
				must(t, errors.Join(p.Middle.A.SetMTU(1280), p.Middle.B.SetMTU(1280), p.Access.Drop(topology.ICMP), p.Exit.Drop(topology.ICMP)))
			}
			b := newBench(t, o)
			began := time.Now()
			b.start()
			load := b.load(100, 0)
			if u.name == "tcp" {
				b.await("TCP carries", func(s admin.Status) bool { return s.Uplink.Up && s.Uplink.Delivered > 0 })
			} else {
				b.await("SCTP carries", func(s admin.Status) bool { return bothPaths(s) && s.Uplink.Delivered > 0 })
			}
			if took := time.Since(began); took > within {
				t.Errorf("the first readings took %v, want at most %v", took, within)
			}
			b.watch("small packets only", 3*time.Second, 1500*time.Millisecond)
			b.check(load)
		})
	}
}

// F20: SCTP is dropped, and behind NATs UDP too: TCP carries, and the status says
// why and when the better way is tried again; it is, once it is there.
func TestField20SCTPAndUDPDropped(t *testing.T) {
	needSCTP(t)
	t.Run("bare", func(t *testing.T) {
		network, o := twoLinks(t, underlays()[0])
		b := newBench(t, o)
		b.start()
		load := b.load(100, 0)
		b.await("SCTP carries", bothPaths)
		b.drop(network, topology.SCTP)
		b.watch("SCTP dropped", 4*time.Second, 3*time.Second)
		b.await("TCP carries, and it is said why", tcpInstead)
		b.drop(network)
		b.await("SCTP carries again", bothPaths)
		b.check(load)
	})
	t.Run("tunnel", func(t *testing.T) {
		network, o := twoLinks(t, tunnels())
		for _, p := range network.Paths {
			must(t, p.Masquerade())
		}
		b := newBench(t, o)
		b.start()
		load := b.load(100, 0)
		b.await("SCTP carries", inTunnels)
		b.drop(network, topology.SCTP) // it goes through tunnels, so nobody minds
		b.watch("SCTP dropped", 2*time.Second, time.Second)
		b.drop(network, topology.SCTP, topology.UDP)
		b.watch("SCTP and UDP dropped", 4*time.Second, 3*time.Second)
		b.await("TCP carries, and it is said why", tcpInstead)
		b.drop(network)
		b.await("SCTP carries again", inTunnels)
		// A gateway that starts there has TCP at once, too.
		b.drop(network, topology.SCTP, topology.UDP)
		b.killGateway()
		b.must(b.site.StartGateway(b.ctx))
		b.watch("started with both dropped", 4*time.Second, 3*time.Second)
		b.await("TCP carries, and it is said why", tcpInstead)
		b.drop(network)
		b.await("SCTP carries again", inTunnels)
		b.check(load)
	})
}

// drop makes each path drop some protocols and pass all others.
func (b *bench) drop(network *topology.Multipath, protocols ...topology.Protocol) {
	b.Helper()
	for _, p := range network.Paths {
		b.must(p.Drop(protocols...))
	}
}

// F21: under load the address of the link that carries is renewed, and NATs forget
// their ports.
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
			b.await("SCTP carries by wlan0", func(s admin.Status) bool { return bothPaths(s) && primary(s) == "wlan0" })
			devices := tunnelDevices(t, network.Gateway)
			p := network.Paths[0]
			b.must(errors.Join(p.Access.A.Renumber(netip.PrefixFrom(p.Access.A.Address().Next(), 24)), p.Join(network)))
			b.watch("address renewed", 6*time.Second, 2*time.Second)
			b.await("both paths are there again", bothPaths)
			if now := tunnelDevices(t, network.Gateway); now != devices {
				t.Errorf("tunnels were %s, and after the renewal are %s: want the same", devices, now)
			}
			if !u.own {
				for _, p := range network.Paths {
					b.must(p.Near.Rebind())
				}
				b.watch("ports rebound", 4*time.Second, 2*time.Second)
				b.await("SCTP carries in the tunnels still", inTunnels)
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
	ends := []*topology.Host{network.Gateway, network.Collector}
	var before, running []string
	for _, h := range ends {
		before = append(before, configuration(t, h))
	}
	b := newBench(t, o)
	b.start()
	load := b.load(100, 0)
	b.await("SCTP carries", inTunnels)
	for _, h := range ends {
		running = append(running, configuration(t, h))
	}
	same := func(when string, h *topology.Host, want string) {
		t.Helper()
		if now := configuration(t, h); now != want {
			t.Errorf("%s: %s has\n%swhere it had\n%s", when, h, now, want)
		}
	}
	b.killGateway()
	b.must(b.site.StartGateway(b.ctx))
	b.await("SCTP carries after the gateway was killed", inTunnels)
	same("the gateway was killed", network.Gateway, running[0])
	b.killCollector()
	b.await("the collector is missed", func(s admin.Status) bool { return !s.Uplink.Up })
	b.must(b.site.StartCollector(b.ctx))
	b.await("SCTP carries after the collector was killed", inTunnels)
	same("the collector was killed", network.Collector, running[1])
	b.watch("both have been killed", 2*time.Second, 2*time.Second)
	b.check(load)
	b.must(b.site.Stop(b.ctx))
	for i, h := range ends {
		same("all has ended", h, before[i])
	}
}

// configuration is what the programs change of a system: devices, rules and
// routes, each in a line, without the numbers that a device gets anew.
func configuration(t *testing.T, h *topology.Host) string {
	t.Helper()
	var lines []string
	must(t, h.Do(func() error {
		links, err := netlink.LinkList()
		if err != nil {
			return err
		}
		for _, l := range links {
			lines = append(lines, "device "+l.Attrs().Name+"\n")
		}
		rules, err := netlink.RuleList(netlink.FAMILY_ALL)
		if err != nil {
			return err
		}
		for _, r := range rules {
			lines = append(lines, fmt.Sprintf("rule of family %d, %d: mark %#x in by %q from %v to %v: table %d\n", r.Family, r.Priority, r.Mark, r.IifName, r.Src, r.Dst, r.Table))
		}
		routes, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return err
		}
		for _, r := range routes {
			if r.Table != unix.RT_TABLE_LOCAL {
				lines = append(lines, fmt.Sprintf("route of family %d to %v via %v: table %d\n", r.Family, r.Dst, r.Gw, r.Table))
			}
		}
		return nil
	}))
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// tunnelDevices are a gateway's tunnels by name and number; one that was removed
// and made again has another number.
func tunnelDevices(t *testing.T, gateway *topology.Host) string {
	t.Helper()
	var devices []string
	must(t, gateway.Do(func() error {
		links, err := netlink.LinkList()
		for _, l := range links {
			if strings.HasPrefix(l.Attrs().Name, "sluice") {
				devices = append(devices, fmt.Sprint(l.Attrs().Name, " number ", l.Attrs().Index))
			}
		}
		return err
	}))
	slices.Sort(devices)
	return strings.Join(devices, ", ")
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
