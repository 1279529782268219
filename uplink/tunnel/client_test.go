package tunnel

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/uplink/wire"
)

// gate is a client with devices in memory and a collector that answers.
type gate struct {
	t    *testing.T
	c    *Client
	back *fakeBackend
	dir  string
	asks []wire.TunnelRequest
	fail error // instead of an answer
	far  *Server
}

var outer = netip.MustParseAddr("203.0.113.9")

func newGate(t *testing.T) *gate {
	t.Helper()
	far, err := newServer(ServerOptions{Dir: t.TempDir(), Network: netip.MustParsePrefix("10.213.0.0/16"), Port: DefaultPort, Logger: quiet()}, newFake())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	g := &gate{t: t, back: newFake(), dir: t.TempDir(), far: far}
	g.open()
	return g
}

// open starts the client, on what an earlier one kept.
func (g *gate) open() {
	g.t.Helper()
	c, err := newClient(Options{DataDir: g.dir, Gateway: "gw-1", Logger: quiet(), Ask: func(_ context.Context, req wire.TunnelRequest) (wire.TunnelReply, error) {
		g.asks = append(g.asks, req)
		if g.fail != nil {
			return wire.TunnelReply{}, g.fail
		}
		return g.far.Lease("gw-1", req)
	}}, g.back)
	if err != nil {
		g.t.Fatal(err)
	}
	g.c = c
}

func (g *gate) apply(u ...Uplink) []Tunnel {
	g.t.Helper()
	up, err := g.c.Apply(g.t.Context(), u, outer)
	if err != nil {
		g.t.Fatal(err)
	}
	return up
}

func (g *gate) said(want ...string) {
	g.t.Helper()
	if got := g.back.said(); !slices.Equal(got, want) {
		g.t.Errorf("backend was asked for %q, want %q", got, want)
	}
}

var (
	wlan = Uplink{Name: "wlan0", Mark: 11, MTU: 1500}
	wwan = Uplink{Name: "wwan0", Mark: 12, MTU: 1400}
)

func TestApply(t *testing.T) {
	g := newGate(t)
	want := []Tunnel{
		{"wlan0", "sluice0", netip.MustParseAddr("10.213.0.2"), netip.MustParseAddr("10.213.0.1"), 1420},
		{"wwan0", "sluice1", netip.MustParseAddr("10.213.64.2"), netip.MustParseAddr("10.213.64.1"), 1320},
	}
	if got := g.apply(wlan, wwan); !slices.Equal(got, want) {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	g.said("create sluice0 mtu 1420 mark 11", "create sluice1 mtu 1320 mark 12")
	for _, d := range g.back.devices {
		for _, p := range d.held {
			if p.endpoint != netip.AddrPortFrom(outer, DefaultPort) || p.keepalive != 25*time.Second || p.allowed.Bits() != 32 || p.public != g.far.public {
				t.Errorf("peer of %s: %+v", d.name, p)
			}
		}
	}

	// The same again changes nothing.
	g.apply(wlan, wwan)
	g.said()

	// Each difference changes as little as can be.
	slow := wlan
	slow.MTU = 1280
	g.apply(slow, wwan)
	g.said("mtu of sluice0: 1200")
	if _, err := g.c.Apply(t.Context(), []Uplink{slow, wwan}, netip.MustParseAddr("2001:db8::9")); err != nil {
		t.Fatal(err)
	}
	g.said("peers of sluice0: 1 set, 0 removed", "peers of sluice1: 1 set, 0 removed")
	marked := wwan
	marked.Mark = 99
	g.apply(slow, marked)
	g.said("peers of sluice0: 1 set, 0 removed", "remove sluice1", "create sluice1 mtu 1320 mark 99")
	g.apply(marked)
	g.said("remove sluice0")

	// Somebody else has the name, and somebody removes a device.
	g.back.taken["sluice0"] = true
	delete(g.back.devices, "sluice1")
	g.apply(wlan, marked)
	g.said("create sluice2 mtu 1420 mark 11", "remove sluice1", "create sluice1 mtu 1320 mark 99")

	if len(g.asks) != 1 {
		t.Errorf("the collector was asked %d times, want once", len(g.asks))
	}
	if err := errors.Join(g.c.Close(), g.c.Close()); err != nil {
		t.Error(err)
	}
	if _, err := g.c.Apply(t.Context(), nil, outer); !errors.Is(err, ErrClosed) {
		t.Errorf("apply after close: got %v, want %v", err, ErrClosed)
	}
}

// A lease outlives the process, and devices that a crash left are replaced.
func TestLeaseIsKept(t *testing.T) {
	g := newGate(t)
	before := g.apply(wlan, wwan)
	g.back.said()
	g.fail = errFake
	g.open()
	if got := g.back.said(); len(got) != 2 || len(g.back.devices) != 0 {
		t.Errorf("after a crash the backend was asked for %q, want both devices swept", got)
	}
	if after := g.apply(wlan, wwan); !slices.Equal(after, before) {
		t.Errorf("got %+v, want %+v", after, before)
	}
	files, err := filepath.Glob(filepath.Join(g.dir, "tunnel", "*"))
	if err != nil || len(files) != 3 {
		t.Fatalf("files %v, %v, want two keys and a lease", files, err)
	}
	for _, f := range files {
		if st, err := os.Stat(f); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v, want it to be its owner's alone", f, st.Mode(), err)
		}
	}

	// One that cannot be read is asked for again.
	for _, text := range []string{"", "{", `{"collector":"AAAA"}`, `{"port":1,"uplinks":{"wlan0":{}}}`} {
		if err := os.WriteFile(filepath.Join(g.dir, "tunnel", "lease.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		g.fail, g.asks = nil, nil
		g.open()
		if got := g.apply(wlan, wwan); !slices.Equal(got, before) || len(g.asks) != 1 {
			t.Errorf("lease %q: %+v after %d requests, want %+v after one", text, got, len(g.asks), before)
		}
	}
}

// What the kept lease has comes up although the collector cannot be asked for the
// rest; the next request is for all, those absent too.
func TestPartialLease(t *testing.T) {
	g := newGate(t)
	g.apply(wlan)
	g.fail = errFake
	up, err := g.c.Apply(t.Context(), []Uplink{wlan, wwan}, outer)
	if !errors.Is(err, errFake) || len(up) != 1 || up[0].Path != "wlan0" {
		t.Errorf("got %+v, %v, want the tunnel of wlan0 and %v", up, err, errFake)
	}
	g.fail, g.asks = nil, nil
	g.back.said()
	if up := g.apply(wwan); len(up) != 1 || up[0].Local != netip.MustParseAddr("10.213.64.2") {
		t.Errorf("got %+v", up)
	}
	if len(g.asks) != 1 || len(g.asks[0].Uplinks) != 2 {
		t.Errorf("asked %+v, want once, for both", g.asks)
	}
	// wlan0 is back: nobody is asked, and others stay as they are.
	g.back.said()
	g.apply(wwan, wlan)
	g.said("create sluice1 mtu 1420 mark 11")
	// Another uplink is new: the collector begins all anew, and so do we.
	g.apply(wwan, wlan, Uplink{Name: "eth0"})
	g.said("peers of sluice0: 1 set, 1 removed", "peers of sluice1: 1 set, 1 removed", "create sluice2 mtu 1420 mark 0")
	if len(g.asks) != 2 {
		t.Errorf("asked %d times, want twice", len(g.asks))
	}
}

// A collector that refuses is left in peace for as long as it says.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t)
		defer g.far.Close()
		g.fail = &RefusedError{Reason: "network is full", RetryAfter: 10 * time.Minute}
		for _, c := range []struct {
			wait time.Duration
			asks int
			says string
		}{{0, 1, "network is full"}, {9 * time.Minute, 1, "asking again in 1m0s"}, {time.Minute, 2, "network is full"}} {
			<-time.After(c.wait)
			if _, err := g.c.Apply(t.Context(), []Uplink{wlan}, outer); err == nil || !strings.Contains(err.Error(), c.says) || len(g.asks) != c.asks {
				t.Errorf("after %v: %v and %d requests, want %q and %d", c.wait, err, len(g.asks), c.says, c.asks)
			}
		}
		g.fail = nil
		if up, err := g.c.Renew(t.Context()); err != nil || len(up) != 1 {
			t.Errorf("renewed: %+v, %v", up, err)
		}
	})
}

// The collector has lost everything.
func TestRenew(t *testing.T) {
	g := newGate(t)
	g.apply(wlan, wwan)
	g.back.said()
	if _, err := g.c.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.said("peers of sluice0: 1 set, 1 removed", "peers of sluice1: 1 set, 1 removed")
	was := g.far
	g.far = newGate(t).far
	if _, err := g.c.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.said("remove sluice0", "create sluice0 mtu 1420 mark 11", "remove sluice1", "create sluice1 mtu 1320 mark 12")
	for _, d := range g.back.devices {
		if _, old := d.held[was.public]; old || len(d.held) != 1 {
			t.Errorf("device %s still knows the old collector", d.name)
		}
	}
}

// A disk that is full does not stop tunnels: the lease holds while the process does.
func TestLeaseNotKept(t *testing.T) {
	g := newGate(t)
	g.apply(wlan)
	g.back.said()
	path := filepath.Join(g.dir, "tunnel", "lease.json")
	if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	up, err := g.c.Renew(t.Context())
	if err == nil || len(up) != 1 {
		t.Errorf("got %+v, %v, want the tunnel and an error", up, err)
	}
	g.said("peers of sluice0: 1 set, 1 removed")
}

// F19: a smaller MTU stays until the link's changes.
func TestSetMTU(t *testing.T) {
	g := newGate(t)
	g.apply(wlan, wwan)
	g.back.said()
	if err := g.c.SetMTU("wwan0", 1200); err != nil {
		t.Fatal(err)
	}
	if up := g.apply(wlan, wwan); up[1].MTU != 1200 || up[0].MTU != 1420 {
		t.Errorf("got %+v", up)
	}
	g.said("mtu of sluice1: 1200")
	states, err := g.c.State(t.Context())
	if err != nil || len(states) != 2 || states[1].MTU != 1200 || states[1].Sent != 1 {
		t.Errorf("state %+v, %v", states, err)
	}
	if err := g.c.SetMTU("wwan0", 1420); err != nil {
		t.Fatal(err)
	}
	g.said("mtu of sluice1: 1320")
	wide := wwan
	wide.MTU = 1500
	g.apply(wlan, wide)
	g.said("mtu of sluice1: 1420")
	for _, mtu := range []int{0, 575, 1421} {
		if err := g.c.SetMTU("wwan0", mtu); err == nil {
			t.Errorf("mtu %d: got no error", mtu)
		}
	}
	if err := g.c.SetMTU("eth9", 1200); err == nil {
		t.Error("mtu of no tunnel: got no error")
	}
}

func TestApplyRefusesNonsense(t *testing.T) {
	g := newGate(t)
	for _, c := range []struct {
		uplinks  []Uplink
		endpoint netip.Addr
		want     string
	}{
		{[]Uplink{wlan}, netip.Addr{}, "address is missing"},
		{[]Uplink{wlan, wlan}, outer, "twice"},
		{[]Uplink{{Name: "../wlan0"}}, outer, "name of an interface"},
		{[]Uplink{{Name: ".."}}, outer, "name of an interface"},
		{[]Uplink{{Name: "abcdefghijklmnop"}}, outer, "name of an interface"},
		{[]Uplink{{Name: "ppp0", MTU: 600}}, outer, "600 bytes"},
		{make([]Uplink, 5), outer, "5 uplinks"},
		{[]Uplink{wlan}, netip.MustParseAddr("10.213.0.1"), "another tunnel network"},
	} {
		up, err := g.c.Apply(t.Context(), c.uplinks, c.endpoint)
		if err == nil || !strings.Contains(err.Error(), c.want) || len(up) != 0 {
			t.Errorf("%+v to %v: got %+v, %v, want an error that says %q", c.uplinks, c.endpoint, up, err, c.want)
		}
	}
}

// An uplink of another family, or in a network of its own, has an address of the
// collector of its own.
func TestApplyWithAnEndpointOfItsOwn(t *testing.T) {
	g := newGate(t)
	own := wwan
	own.Endpoint = netip.MustParseAddr("2001:db8::9")
	g.apply(wlan, own)
	for device, want := range map[string]netip.Addr{"sluice0": outer, "sluice1": own.Endpoint} {
		for _, p := range g.back.devices[device].held {
			if got := p.endpoint.Addr(); got != want {
				t.Errorf("%s leads to %v, want %v", device, got, want)
			}
		}
	}
}

// A link too small for a tunnel does not keep the others from theirs.
func TestApplyWithASmallLink(t *testing.T) {
	g := newGate(t)
	up, err := g.c.Apply(t.Context(), []Uplink{{Name: "ppp0", MTU: 600}, wlan}, outer)
	if err == nil || len(up) != 1 || up[0].Path != "wlan0" {
		t.Errorf("got %+v, %v, want the tunnel of wlan0 and an error about ppp0", up, err)
	}
}

// A call that waits for another's turn ends with its context.
func TestApplyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t)
		defer g.far.Close()
		<-g.c.turn
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := g.c.Apply(ctx, []Uplink{wlan}, outer); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
		}
		g.c.give()
	})
}

// Keys are made once, as wg(8) writes them.
func TestKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "wlan0.key")
	first, err := openKey(path)
	if err != nil {
		t.Fatal(err)
	}
	again, err := openKey(path)
	if err != nil || again != first {
		t.Errorf("got %v, %v, want the same key", again, err)
	}
	if first[0]&7 != 0 || first[31]&0xc0 != 0x40 {
		t.Errorf("private key %x is not clamped", first[:])
	}
	// Alice's keys in RFC 7748, section 6.1.
	var private, public key
	if err := errors.Join(private.UnmarshalText([]byte("dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=")),
		public.UnmarshalText([]byte("hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo="))); err != nil {
		t.Fatal(err)
	}
	if got, err := private.public(); err != nil || got != public {
		t.Errorf("public key %v, %v, want %v", got, err, public)
	}
	for _, text := range []string{"", "no key", "AAAA"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := openKey(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("key %q: got %v, want an error that names the file", text, err)
		}
	}
}
