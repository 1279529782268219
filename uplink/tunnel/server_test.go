package tunnel

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/uplink/wire"
)

// far is a collector with a device in memory that can be started again.
type far struct {
	*Server
	t    *testing.T
	dir  string
	net  string
	back *fakeBackend
}

func newFar(t *testing.T, network string) *far {
	t.Helper()
	f := &far{t: t, dir: t.TempDir(), net: network}
	f.open()
	return f
}

// open starts the collector on what an earlier one kept.
func (f *far) open() {
	f.t.Helper()
	f.back = newFake()
	s, err := newServer(ServerOptions{Dir: f.dir, Network: netip.MustParsePrefix(f.net), Port: DefaultPort, Logger: quiet()}, f.back)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { s.Close() })
	f.Server = s
}

// lease asks for uplinks, written "name key".
func (f *far) lease(gateway string, uplinks ...string) (wire.TunnelReply, error) {
	req := wire.TunnelRequest{Gateway: gateway}
	for _, u := range uplinks {
		var t wire.TunnelUplink
		var k string
		fmt.Sscan(u, &t.Name, &k)
		copy(t.Key[:], k)
		req.Uplinks = append(req.Uplinks, t)
	}
	return f.Server.Lease(gateway, req)
}

// peers is "address key" of the device's peers.
func (f *far) peers() map[string]string {
	f.back.mu.Lock()
	defer f.back.mu.Unlock()
	all := make(map[string]string)
	for k, p := range f.back.devices[serverDevice].held {
		all[p.allowed.Addr().String()] = strings.TrimRight(string(k[:]), "\x00")
	}
	return all
}

func (f *far) holds(want map[string]string) {
	f.t.Helper()
	if got := f.peers(); fmt.Sprint(got) != fmt.Sprint(want) {
		f.t.Errorf("peers %v, want %v", got, want)
	}
}

func locals(r wire.TunnelReply) (s string) {
	for _, l := range r.Tunnels {
		s += fmt.Sprintf("%s>%s ", l.Local, l.Remote)
	}
	return strings.TrimSpace(s)
}

func TestServerLease(t *testing.T) {
	f := newFar(t, "10.213.0.0/16")
	want := func(gateway, addresses string, uplinks ...string) {
		t.Helper()
		r, err := f.lease(gateway, uplinks...)
		if err != nil || locals(r) != addresses || r.Port != DefaultPort || key(r.Key) != f.public {
			t.Errorf("lease of %v to %s: %s, %v, want %s", uplinks, gateway, locals(r), err, addresses)
		}
	}
	want("gw-1", "10.213.0.2/32>10.213.0.1 10.213.64.2/32>10.213.64.1", "wlan0 a", "wwan0 b")
	want("gw-2", "10.213.0.3/32>10.213.0.1", "eth0 c")
	f.holds(map[string]string{"10.213.0.2": "a", "10.213.64.2": "b", "10.213.0.3": "c"})

	// The same uplink again, alone, with a new key: only that changes.
	f.back.said()
	want("gw-1", "10.213.64.2/32>10.213.64.1", "wwan0 B")
	f.holds(map[string]string{"10.213.0.2": "a", "10.213.64.2": "B", "10.213.0.3": "c"})
	if got := f.back.said(); len(got) != 1 || got[0] != "peers of sluice-wg: 1 set, 2 removed" {
		t.Errorf("device was told %q", got)
	}

	// After a restart all are let in as before.
	f.Close()
	f.open()
	f.holds(map[string]string{"10.213.0.2": "a", "10.213.64.2": "B", "10.213.0.3": "c"})
	want("gw-1", "10.213.64.2/32>10.213.64.1 10.213.0.2/32>10.213.0.1", "wwan0 B", "wlan0 a")

	// A fifth uplink gets the place of the oldest that is not asked for.
	want("gw-1", "10.213.128.2/32>10.213.128.1 10.213.192.2/32>10.213.192.1", "eth0 d", "eth1 e")
	want("gw-1", "10.213.64.2/32>10.213.64.1 10.213.0.2/32>10.213.0.1", "usb0 f", "wlan0 a")
	// Two interfaces swapped names and kept their keys, or one was renamed.
	want("gw-1", "10.213.64.2/32>10.213.64.1 10.213.0.2/32>10.213.0.1", "usb0 a", "wlan0 f")
	want("gw-2", "10.213.0.3/32>10.213.0.1", "lan0 c")
	f.holds(map[string]string{"10.213.0.2": "f", "10.213.64.2": "a", "10.213.128.2": "d", "10.213.192.2": "e", "10.213.0.3": "c"})

	for i, a := range f.Addresses() {
		if want := fmt.Sprintf("10.213.%d.1", 64*i); a.String() != want {
			t.Errorf("address %d: %s, want %s", i, a, want)
		}
	}
}

func TestServerRefuses(t *testing.T) {
	f := newFar(t, "10.9.8.0/27") // quarters of 8 addresses: room for 5 gateways
	for g := range 5 {
		if _, err := f.lease(fmt.Sprint("gw-", g), fmt.Sprint("wlan0 k", g)); err != nil {
			t.Fatal(err)
		}
	}
	before := f.peers()
	for _, c := range []struct {
		gateway string
		uplinks []string
		want    string
	}{
		{"gw-5", []string{"wlan0 k5"}, "with 5 gateways: network is full: choose a larger one"},
		{"gw-1", []string{"wwan0 k2"}, "gateway gw-2 has this key already"},
		{"gw-1", []string{"wlan0 x", "wlan0 y"}, "twice"},
		{"gw-1", []string{"wlan0 x", "wwan0 x"}, "twice"},
		{"gw-1", []string{"wlan0 x", "w/0 y"}, "name of an interface"},
		{"gw-1", []string{"wlan0"}, "has no key"},
		{"gw-1", nil, "0 uplinks"},
		{"gw-1", []string{"a a", "b b", "c c", "d d", "e e"}, "5 uplinks"},
		{"", []string{"a a"}, "asks as"},
	} {
		if r, err := f.lease(c.gateway, c.uplinks...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("lease of %v to %s: %s, %v, want an error that says %q", c.uplinks, c.gateway, locals(r), err, c.want)
		}
	}
	own := wire.TunnelRequest{Gateway: "gw-1", Uplinks: []wire.TunnelUplink{{Name: "wlan0", Key: wire.TunnelKey(f.public)}}}
	if _, err := f.Lease("gw-1", own); err == nil || !strings.Contains(err.Error(), "key is the collector's") {
		t.Errorf("lease for the collector's own key: got %v", err)
	}
	if _, err := f.lease("gw-5", "wlan0 k5"); !errors.Is(err, ErrFull) {
		t.Errorf("got %v, want %v", err, ErrFull)
	}
	f.holds(before)
}

// Nothing is promised that is not on the disk, and what the device would not take
// it takes when the gateway asks again.
func TestServerFaults(t *testing.T) {
	f := newFar(t, "10.213.0.0/16")
	moved := f.dir + ".moved"
	if err := os.Rename(f.dir, moved); err != nil {
		t.Fatal(err)
	}
	if _, err := f.lease("gw-1", "wlan0 a"); err == nil {
		t.Error("lease without a folder to keep it in: got no error")
	}
	f.holds(map[string]string{})
	if err := os.Rename(moved, f.dir); err != nil {
		t.Fatal(err)
	}
	f.back.fails = errFake
	if _, err := f.lease("gw-1", "wlan0 a"); !errors.Is(err, errFake) {
		t.Errorf("got %v, want %v", err, errFake)
	}
	f.back.fails = nil
	if _, err := f.lease("gw-1", "wlan0 a"); err != nil {
		t.Error(err)
	}
	f.holds(map[string]string{"10.213.0.2": "a"})
	f.Close()
	if _, err := f.lease("gw-1", "wlan0 a"); !errors.Is(err, ErrClosed) {
		t.Errorf("after close: got %v, want %v", err, ErrClosed)
	}
}

// Thousands of gateways ask at once, and are there after a restart.
func TestServerThousands(t *testing.T) {
	f := newFar(t, "10.213.0.0/16")
	const gateways, askers = 3000, 64
	begin := time.Now()
	var wg sync.WaitGroup
	for a := range askers {
		wg.Go(func() {
			for g := a; g < gateways; g += askers {
				if _, err := f.lease(fmt.Sprint("gw-", g), fmt.Sprint("wlan0 a", g), fmt.Sprint("wwan0 b", g)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(begin)
	st, err := os.Stat(filepath.Join(f.dir, "tunnel.json"))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d gateways in %v with %d at once; tunnel.json has %d bytes", gateways, took.Round(time.Millisecond), askers, st.Size())
	before := f.peers()
	if len(before) != 2*gateways {
		t.Fatalf("%d peers, want %d", len(before), 2*gateways)
	}
	f.Close()
	f.open()
	f.holds(before)
}

// A file that this program would not have written is refused by name.
func TestRegistryDamaged(t *testing.T) {
	p, err := newPlan(netip.MustParsePrefix("10.213.0.0/16"))
	if err != nil {
		t.Fatal(err)
	}
	a := key{1}.String()
	for _, c := range []struct{ text, want string }{
		{``, "EOF"},
		{`{"version":2}`, "version 2"},
		{`{"version":1,"network":"x"}`, "unknown field"},
		{`{"version":1,"gateways":{"g":{"number":16384}}}`, "room for"},
		{`{"version":1,"gateways":{"g":{"number":-1}}}`, "room for"},
		{`{"version":1,"gateways":{"g":{"number":1},"h":{"number":1}}}`, "as well"},
		{`{"version":1,"gateways":{"":{"number":1}}}`, "without a name"},
		{`{"version":1,"gateways":{"g":{"uplinks":[{"name":"w","number":4,"key":"` + a + `"}]}}}`, "out of range"},
		{`{"version":1,"gateways":{"g":{"uplinks":[{"name":"w","number":0}]}}}`, "no key"},
		{`{"version":1,"gateways":{"g":{"uplinks":[{"name":"w","number":0,"key":"` + a + `"},{"name":"v","number":1,"key":"` + a + `"}]}}}`, "another's"},
	} {
		path := filepath.Join(t.TempDir(), "tunnel.json")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readRegistry(path, p); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v, want an error that names the file and says %q", c.text, err, c.want)
		}
	}
}

// FuzzRegistry feeds arbitrary text as the kept file; what is taken comes back
// the same.
func FuzzRegistry(f *testing.F) {
	p, err := newPlan(netip.MustParsePrefix("10.213.0.0/16"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"version":1,"gateways":{"gw-1":{"number":3,"uplinks":[{"name":"wlan0","number":2,"key":"` + key{1}.String() + `"}]}}}`))
	f.Add([]byte(`{"version":1,"gateways":{}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := decodeRegistry(text, p)
		if err != nil {
			return
		}
		again, err := r.encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeRegistry(again, p); err != nil {
			t.Fatalf("%s: %v", again, err)
		}
	})
}

func TestPlan(t *testing.T) {
	for _, c := range []struct {
		network  string
		gateways int
		last     string // the last gateway's last address
	}{
		{"10.213.0.0/16", 16381, "10.213.255.254/32"},
		{"10.9.8.0/28", 1, "10.9.8.14/32"},
		{"10.9.8.77/24", 61, "10.9.8.254/32"},
		{"10.0.0.0/8", 1<<22 - 3, "10.255.255.254/32"},
	} {
		p, err := newPlan(netip.MustParsePrefix(c.network))
		if err != nil {
			t.Fatal(err)
		}
		if got := p.gateways(); got != c.gateways {
			t.Errorf("%s has room for %d gateways, want %d", c.network, got, c.gateways)
		}
		if got := p.gateway(p.gateways()-1, 3).String(); got != c.last {
			t.Errorf("%s ends with %s, want %s", c.network, got, c.last)
		}
	}
	for _, n := range []netip.Prefix{{}, netip.MustParsePrefix("fd00::/48"), netip.MustParsePrefix("10.0.0.0/29"), netip.MustParsePrefix("0.0.0.0/0")} {
		if _, err := newPlan(n); err == nil {
			t.Errorf("network %v: got no error", n)
		}
	}
}

// Another collector's device is left alone.
func TestServerNameTaken(t *testing.T) {
	b := newFake()
	b.taken[serverDevice] = true
	_, err := newServer(ServerOptions{Dir: t.TempDir(), Network: netip.MustParsePrefix("10.213.0.0/16"), Port: DefaultPort, Logger: quiet()}, b)
	if !errors.Is(err, errTaken) || !strings.Contains(err.Error(), "stop the other collector") {
		t.Errorf("got %v", err)
	}
}
