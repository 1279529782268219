package tunnel

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// A path of 1280 bytes whose routers tell nobody (F19): outer packets may be
// fragmented, so large ones pass; where fragments are dropped too, a smaller MTU
// helps, without anything being made anew.
func TestSmallPath(t *testing.T) {
	backends(t, func(t *testing.T, backend string) {
		p := newPair(t, backend)
		p.router[0].must(p.router[0].nl.LinkSetMTU(p.router[0].link("wan"), 1280))
		p.core.must(p.core.nl.LinkSetMTU(p.core.link("r0"), 1280))
		large := func(limit time.Duration) error {
			_, err := p.gateway.ping(p.tunnels[0].Local, p.tunnels[0].Remote, 1300, limit)
			return err
		}
		p.carries(0, 5*time.Second, "start")
		if err := large(2 * time.Second); err != nil {
			t.Errorf("path of 1280 bytes: %v", err)
		}
		p.core.dropFragments()
		if err := large(500 * time.Millisecond); err == nil {
			t.Error("large packets pass although fragments are dropped: the test is worth nothing")
		}
		p.carries(0, time.Second, "fragments dropped")
		p.gate.tell(order{Op: "mtu", Path: "w0", MTU: 1200})
		if err := large(2 * time.Second); err != nil {
			t.Errorf("tunnel of 1200 bytes: %v", err)
		}
		if again := p.apply(uplinks); again[0].MTU != 1200 || again[1].MTU != 1420 {
			t.Errorf("applied again: %+v, want the MTU to stay", again)
		}
	})
}

// dropFragments drops what is not a whole IPv4 packet on its way through.
func (h *host) dropFragments() {
	h.t.Helper()
	c, err := nftables.New(nftables.WithNetNSFd(int(h.ns)))
	h.must(err)
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "filter"})
	chain := c.AddChain(&nftables.Chain{Name: "forward", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter})
	c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		// More fragments, or an offset.
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 6, Len: 2},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 2, Mask: []byte{0x3f, 0xff}, Xor: []byte{0, 0}},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte{0, 0}},
		&expr.Verdict{Kind: expr.VerdictDrop},
	}})
	h.must(c.Flush())
}

// Gateways do not reach each other through the collector, although it forwards
// packets for others and a gateway lets everything out.
func TestNoForwarding(t *testing.T) {
	backends(t, func(t *testing.T, kind string) {
		far, a, b := newHost(t), newHost(t), newHost(t)
		far.sysctl("net/ipv4/ip_forward", "1")
		connect(far, "a", "198.18.1.1/24", a, "eth0", "198.18.1.2/24")
		connect(far, "b", "198.18.2.1/24", b, "eth0", "198.18.2.2/24")

		var server *Server
		inside(t, far.ns, func() error {
			back, err := chosenBackend(kind, quiet())
			if err != nil {
				return err
			}
			server, err = newServer(ServerOptions{Dir: t.TempDir(), Network: network, Port: DefaultPort, Logger: quiet()}, back)
			return err
		})
		t.Cleanup(func() { server.Close() })
		plan := server.plan
		everyone := netip.MustParsePrefix("10.213.0.0/16")
		for i, h := range []*host{a, b} {
			inside(t, h.ns, func() error {
				back, err := chosenBackend(kind, quiet())
				if err != nil {
					return err
				}
				private, err := newKey()
				if err != nil {
					return err
				}
				public, err := private.public()
				if err != nil {
					return err
				}
				if err := server.device.setPeers([]peer{{public: public, allowed: plan.gateway(i, 0)}}, nil); err != nil {
					return err
				}
				d, err := back.create("sluice0", settings{
					private: private, mtu: MaxMTU, addresses: []netip.Prefix{plan.gateway(i, 0)},
					hosts: []netip.Addr{plan.collector(0).Addr(), plan.gateway(1-i, 0).Addr()},
				}, []peer{{public: server.public, allowed: everyone, keepalive: keepalive,
					endpoint: netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, byte(i + 1), 1}), DefaultPort)}})
				if err == nil {
					t.Cleanup(func() { d.close(); back.close() })
				}
				return err
			})
			h.echo(plan.gateway(i, 0).Addr())
		}
		far.echo(plan.collector(0).Addr())
		self, other := plan.gateway(0, 0).Addr(), plan.gateway(1, 0).Addr()
		if _, err := a.ping(self, plan.collector(0).Addr(), 100, 5*time.Second); err != nil {
			t.Fatal(err)
		}
		if _, err := b.ping(other, plan.collector(0).Addr(), 100, 5*time.Second); err != nil {
			t.Fatal(err)
		}
		if _, err := a.ping(self, other, 100, 500*time.Millisecond); err == nil {
			t.Error("a gateway reaches another")
		}
		rule := (&link{name: serverDevice}).rule()
		far.must(far.nl.RuleDel(rule))
		if _, err := a.ping(self, other, 100, 2*time.Second); err != nil {
			t.Errorf("not even without the rule, so that this test is worth nothing: %v", err)
		}
		far.must(far.nl.RuleAdd(rule))
	})
}
