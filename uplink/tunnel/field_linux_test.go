package tunnel

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pair is both ends in a world.
type pair struct {
	*world
	gate, coll *actor
	leases     string
	scripts    [2]script
	tunnels    []Tunnel
	echoing    []*net.UDPConn
}

var network = netip.MustParsePrefix("10.213.0.0/16")

// newPair starts both ends and brings up two tunnels.
func newPair(t *testing.T, backend string) *pair {
	t.Helper()
	p := &pair{world: newWorld(t), leases: filepath.Join(t.TempDir(), "leases")}
	p.scripts[0] = script{Backend: backend, Dir: t.TempDir(), Leases: p.leases, Gateway: "gw-1"}
	p.scripts[1] = script{Backend: backend, Dir: t.TempDir(), Leases: p.leases, Network: network}
	p.coll = start(t, p.far.ns, "collector", p.scripts[1])
	p.echoes()
	p.gate = start(t, p.gateway.ns, "gateway", p.scripts[0])
	p.tunnels = p.apply(uplinks)
	if len(p.tunnels) != 2 || p.tunnels[0].Remote == p.tunnels[1].Remote {
		t.Fatalf("tunnels %+v, want two to different addresses", p.tunnels)
	}
	return p
}

// echoes answers at the collector's inner addresses, from when they are there.
func (p *pair) echoes() {
	p.t.Helper()
	pl, err := newPlan(network)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, c := range p.echoing {
		c.Close()
	}
	p.echoing = nil
	for u := range uplinks {
		p.echoing = append(p.echoing, p.far.echo(pl.collector(u).Addr()))
	}
}

func (p *pair) apply(u []Uplink) []Tunnel {
	p.t.Helper()
	return p.gate.tell(order{Op: "apply", Uplinks: u, Endpoint: collectorAddr}).Tunnels
}

// carries checks that a tunnel passes packets within a time, and logs how soon.
func (p *pair) carries(i int, limit time.Duration, when string) {
	p.t.Helper()
	took, err := p.gateway.ping(p.tunnels[i].Local, p.tunnels[i].Remote, 100, limit)
	if err != nil {
		p.t.Fatalf("%s: tunnel %d: %v", when, i, err)
	}
	p.t.Logf("%s: tunnel %d answers after %v", when, i, took.Round(time.Millisecond))
}

func (p *pair) silent(i int, when string) {
	p.t.Helper()
	if took, err := p.gateway.ping(p.tunnels[i].Local, p.tunnels[i].Remote, 100, 500*time.Millisecond); err == nil {
		p.t.Fatalf("%s: tunnel %d answers after %v, want silence", when, i, took)
	}
}

// F20, F21: two uplinks behind a NAT each carry at once and apart; one that goes
// down takes nothing with it; a NAT that gives another address and an uplink that
// gets another one are followed.
func TestTwoUplinks(t *testing.T) {
	backends(t, func(t *testing.T, backend string) {
		p := newPair(t, backend)
		p.carries(0, 5*time.Second, "start")
		p.carries(1, 5*time.Second, "start")

		if again := p.apply(uplinks); !slices.Equal(again, p.tunnels) {
			t.Errorf("applied again: %+v, want %+v", again, p.tunnels)
		}

		// Only the tunnel's own uplink carries it.
		p.router[0].down("wan")
		p.silent(0, "router 1 cut")
		p.carries(1, time.Second, "router 1 cut")
		p.router[0].up("wan")
		p.router[0].route("0.0.0.0/0", "198.18.1.1", "wan", 0)
		p.carries(0, 20*time.Second, "router 1 back")

		// The NAT forgets, and has another address.
		p.router[0].unaddress("wan", "198.18.1.2/24")
		p.router[0].address("wan", "198.18.1.9/24")
		p.router[0].route("0.0.0.0/0", "198.18.1.1", "wan", 0)
		p.carries(0, 20*time.Second, "router 1 has another address")

		// The uplink gets another address.
		p.gateway.unaddress("w1", "192.168.2.2/24")
		p.gateway.address("w1", "192.168.2.77/24")
		p.gateway.route("0.0.0.0/0", "192.168.2.1", "w1", int(uplinks[1].Mark))
		p.carries(1, 20*time.Second, "uplink 2 has another address")

		// The collector answers from the address that was asked, which is the only
		// one that a NAT lets in to a port that never asked another.
		p.far.address("eth0", "198.18.0.77/24")
		p.apply(nil)
		p.gate.tell(order{Op: "apply", Uplinks: uplinks, Endpoint: netip.MustParseAddr("198.18.0.77")})
		p.carries(0, 5*time.Second, "another address of the collector")
		p.apply(uplinks)

		states := p.gate.tell(order{Op: "state"}).States
		for _, s := range states {
			if s.Handshake.IsZero() || s.Sent == 0 || s.Received == 0 {
				t.Errorf("state %+v, want a handshake and bytes in both directions", s)
			}
		}

		// One uplink leaves and comes back, the other notices nothing.
		p.apply(uplinks[1:])
		if _, err := p.gateway.nl.LinkByName(p.tunnels[0].Device); err == nil {
			t.Errorf("device %s is still there", p.tunnels[0].Device)
		}
		p.carries(1, time.Second, "uplink 1 gone")
		p.coll.kill() // it is not asked
		if back := p.apply(uplinks); !slices.Equal(back, p.tunnels) {
			t.Errorf("back: %+v, want %+v", back, p.tunnels)
		}
		p.gate.stop()
		if left := p.gateway.rules(); len(left) != 0 {
			t.Errorf("rules %v are there after the end", left)
		}
		for _, tun := range p.tunnels {
			if _, err := p.gateway.nl.LinkByName(tun.Device); err == nil {
				t.Errorf("device %s is there after the end", tun.Device)
			}
		}
	})
}

// Either end may crash at any time, and both go on from what they kept.
func TestCrash(t *testing.T) {
	backends(t, func(t *testing.T, backend string) {
		p := newPair(t, backend)
		p.carries(0, 5*time.Second, "start")
		p.carries(1, 5*time.Second, "start")

		p.gate.kill()
		p.coll.kill()
		// The collector takes no requests yet: the kept lease must do.
		p.scripts[1].Leases = filepath.Join(t.TempDir(), "elsewhere")
		p.coll = start(t, p.far.ns, "collector", p.scripts[1])
		p.echoes()
		p.gate = start(t, p.gateway.ns, "gateway", p.scripts[0])
		if left := p.gateway.rules(); len(left) != 0 {
			t.Errorf("rules %v were left", left)
		}
		if again := p.apply(uplinks); !slices.Equal(again, p.tunnels) {
			t.Errorf("after crashes: %+v, want %+v", again, p.tunnels)
		}
		p.carries(0, 5*time.Second, "both crashed")
		p.carries(1, 5*time.Second, "both crashed")

		p.coll.kill()
		p.scripts[1].Leases = p.leases
		p.coll = start(t, p.far.ns, "collector", p.scripts[1])
		p.echoes()
		if backend == "kernel" {
			p.carries(1, time.Second, "collector crashed, device taken over")
		}
		p.gate.tell(order{Op: "renew"})
		p.carries(0, 5*time.Second, "collector crashed, renewed")
		p.coll.stop()
		if _, err := p.far.nl.LinkByName(serverDevice); err == nil {
			t.Errorf("device %s is there after the end", serverDevice)
		}
	})
}

// A gateway without a clock of its own comes back with an earlier time, and its
// handshakes look like old ones repeated. Renew puts that right.
func TestClockSetBack(t *testing.T) {
	need(t, os.Getenv("SLUICE_GUEST") != "", "a clock that may be set")
	backends(t, func(t *testing.T, backend string) {
		p := newPair(t, backend)
		p.carries(0, 5*time.Second, "start")
		p.gate.kill()
		back := unix.NsecToTimeval(time.Now().Add(-time.Hour).UnixNano())
		if err := unix.Settimeofday(&back); err != nil {
			t.Fatal(err)
		}
		p.gate = start(t, p.gateway.ns, "gateway", p.scripts[0])
		p.apply(uplinks)
		p.silent(0, "clock set back")
		p.gate.tell(order{Op: "renew"})
		p.carries(0, 5*time.Second, "renewed")
		p.carries(1, 5*time.Second, "renewed")
	})
}

// Outer packets may be IPv6 as well.
func TestIPv6(t *testing.T) {
	backends(t, func(t *testing.T, backend string) {
		far, gateway := newHost(t), newHost(t)
		connect(far, "eth0", "198.18.0.1/24", gateway, "w0", "198.18.0.2/24")
		far.address("eth0", "fd00:18::1/64")
		gateway.address("w0", "fd00:18::2/64")
		leases := filepath.Join(t.TempDir(), "leases")
		start(t, far.ns, "collector", script{Backend: backend, Dir: t.TempDir(), Leases: leases, Network: network})
		gate := start(t, gateway.ns, "gateway", script{Backend: backend, Dir: t.TempDir(), Leases: leases, Gateway: "gw-1"})
		up := gate.tell(order{Op: "apply", Uplinks: uplinks[:1], Endpoint: netip.MustParseAddr("fd00:18::1")}).Tunnels
		far.echo(up[0].Remote)
		if _, err := gateway.ping(up[0].Local, up[0].Remote, 1392, 10*time.Second); err != nil {
			t.Error(err)
		}
		if s := gate.tell(order{Op: "state"}).States; len(s) != 1 || s[0].Received == 0 {
			t.Errorf("state %+v, want bytes received", s)
		}
	})
}
