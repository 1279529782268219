package paths

import (
	"context"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"sluice/uplink/probe"
)

const probePort = 7777

// prober probes the world over one path, through a responder in its router.
func prober(t *testing.T, m *running, u *uplink) *probe.Prober {
	t.Helper()
	var far net.PacketConn
	u.in(func() (err error) {
		far, err = net.ListenPacket("udp", netip.AddrPortFrom(world4, probePort).String())
		return err
	})
	config := net.ListenConfig{Control: func(network, address string, c syscall.RawConn) error {
		return m.Control(u.name)(t.Context(), network, address, c)
	}}
	near, err := config.ListenPacket(t.Context(), "udp4", "")
	u.must(err)
	p, err := probe.New(probe.Options{Conn: near, Remote: netip.AddrPortFrom(world4, probePort), Interval: 100 * time.Millisecond})
	u.must(err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() { done <- p.Run(ctx) }()
	go func() { done <- probe.Respond(ctx, far) }()
	t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		near.Close()
		far.Close()
	})
	return p
}

func heard(p *probe.Prober, since time.Time) func() bool {
	return func() bool { return p.Stats().Last.After(since) }
}

// eventually waits for ok, and returns how long that took.
func eventually(t *testing.T, what string, ok func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	for limit := began.Add(patient(5 * time.Second)); !ok(); {
		if time.Now().After(limit) {
			t.Fatalf("%s: not in time", what)
		}
		<-time.After(5 * time.Millisecond)
	}
	took := time.Since(began)
	t.Logf("%s after %v", what, took.Round(time.Millisecond))
	return took
}

// F16: a path that is associated but leads nowhere is known from its probes within
// a second, while the other one's are answered; so is one whose interface is gone.
func TestProbesSeeDeadPath(t *testing.T) {
	if !isolated(t) {
		return
	}
	wifi, lte := two(t)
	m := run(t, options())
	m.await("both up", both)
	overWifi, overLTE := prober(t, m, wifi), prober(t, m, lte)
	start := time.Now()
	eventually(t, "wlan7 heard", heard(overWifi, start))
	eventually(t, "wwan7 heard", heard(overLTE, start))

	wifi.dead()
	took := eventually(t, "wlan7 silent", func() bool { return overWifi.Stats().Unanswered >= 3 })
	if took > patient(time.Second) {
		t.Errorf("took %v, want a second at most", took)
	}
	if s := overLTE.Stats(); s.Unanswered > 0 || time.Since(s.Last) > patient(time.Second) {
		t.Errorf("wwan7 meanwhile: got %+v, want it heard", s)
	}

	lte.must(netlink.LinkDel(lte.link()))
	eventually(t, "wwan7 silent without interface", func() bool { return overLTE.Stats().Unanswered >= 3 })
	lte.create()
	lte.address(lte4, lte6)
	lte.defaults()
	m.reason("wwan7", "")
	if s := overLTE.Stats(); s.Unanswered < 3 {
		t.Errorf("the old socket: got %+v, want it tied to the interface that is gone", s)
	}
	if got := who(net.Dialer{ControlContext: m.Control("wwan7")}, world4); got != "wwan7" {
		t.Errorf("a new socket: went by %s", got)
	}
}

// F19: a hop that takes 1280 bytes and says nothing of it. (A veth pair drops what
// is longer than the receiving end's MTU and the four bytes of a VLAN tag.)
func TestProbesFindMTU(t *testing.T) {
	if !isolated(t) {
		return
	}
	wifi := newUplink(t, "wlan7", wifi4, netip.Prefix{}, 100)
	m := run(t, options())
	m.reason("wlan7", "")
	p := prober(t, m, wifi)
	eventually(t, "heard", heard(p, time.Now()))
	for _, c := range []struct {
		lan, size int
		want      bool
	}{
		{1500, 1500, true},
		{1500, 1501, false}, // more than the interface takes
		{1280, 1500, false}, // lost on the way there
		{1280, 1281, false}, // the answer is lost
		{1280, 1280, true},
	} {
		wifi.must(wifi.router.LinkSetMTU(wifi.lan(), c.lan))
		began := time.Now()
		got, err := p.Fits(t.Context(), c.size)
		if err != nil || got != c.want {
			t.Errorf("%d bytes over %d: got %v, %v, want %v", c.size, c.lan, got, err, c.want)
		}
		if took := time.Since(began); took > patient(2*time.Second) {
			t.Errorf("%d bytes over %d: took %v", c.size, c.lan, took)
		}
	}
}
