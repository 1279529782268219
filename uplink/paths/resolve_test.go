package paths

import (
	"context"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// nameserver answers each query as say says, on the loopback.
func nameserver(t *testing.T, say func(n int, query []byte) []byte) netip.AddrPort {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		b := make([]byte, 1500)
		for n := 0; ; n++ {
			length, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			if a := say(n, b[:length]); a != nil {
				conn.WriteTo(a, from)
			}
		}
	}()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort()
}

func TestLookup(t *testing.T) {
	four, six := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	good := func(_ int, q []byte) []byte {
		if kind, _ := dnsQuestion(q); kind == typeAAAA {
			return dnsAnswer(q, six)
		}
		return dnsAnswer(q, four)
	}
	silent := func(int, []byte) []byte { return nil }
	broken := func(_ int, q []byte) []byte { return dnsError(q, 2) }
	unknown := func(_ int, q []byte) []byte { return dnsError(q, 3) }
	dropsIPv6 := func(_ int, q []byte) []byte {
		if kind, _ := dnsQuestion(q); kind == typeAAAA {
			return nil
		}
		return dnsAnswer(q, four)
	}
	lossy := func(n int, q []byte) []byte {
		if n < 2 {
			return nil
		}
		return good(n, q)
	}
	dual := []string{"ip4", "ip6"}
	for _, c := range []struct {
		name     string
		servers  []func(int, []byte) []byte
		networks []string
		want     []netip.Addr // sorted
		wantErr  string
		within   time.Duration
	}{
		{"both families", []func(int, []byte) []byte{good}, dual, []netip.Addr{four, six}, "", 500 * time.Millisecond},
		{"one family", []func(int, []byte) []byte{good}, dual[:1], []netip.Addr{four}, "", 500 * time.Millisecond},
		{"IPv6 questions dropped", []func(int, []byte) []byte{dropsIPv6}, dual, []netip.Addr{four}, "", 900 * time.Millisecond},
		{"the first is silent", []func(int, []byte) []byte{silent, good}, dual, []netip.Addr{four, six}, "", 2 * time.Second},
		{"the first is broken", []func(int, []byte) []byte{broken, good}, dual, []netip.Addr{four, six}, "", time.Second},
		{"the first queries are lost", []func(int, []byte) []byte{lossy}, dual, []netip.Addr{four, six}, "", 2 * time.Second},
		{"no such name", []func(int, []byte) []byte{unknown, silent}, dual, nil, "no such host", 500 * time.Millisecond},
		{"all are silent", []func(int, []byte) []byte{silent}, dual, nil, "", 3 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var servers []netip.AddrPort
			for _, say := range c.servers {
				servers = append(servers, nameserver(t, say))
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
			defer cancel()
			began := time.Now()
			got, err := lookup(ctx, nil, servers, c.networks, "collector.example.org")
			slices.SortFunc(got, netip.Addr.Compare)
			if !slices.Equal(got, c.want) || (err == nil) != (c.want != nil) || err != nil && !strings.Contains(err.Error(), c.wantErr) {
				t.Errorf("got %v, %v, want %v %s", got, err, c.want, c.wantErr)
			}
			if took := time.Since(began); took > patient(c.within) {
				t.Errorf("took %v, want at most %v", took, c.within)
			}
		})
	}
}

func TestNameservers(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		f := filepath.Join(dir, name)
		if err := os.WriteFile(f, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return f
	}
	own := file("own", "nameserver 10.0.0.1\nnameserver fe80::1%wlan0\n")
	stub := file("stub", "nameserver 127.0.0.53\noptions edns0\n")
	many := file("many", "nameserver 1.1.1.1\nnameserver 2.2.2.2\nnameserver 3.3.3.3\nnameserver 4.4.4.4\n")
	four := Path{Name: "wlan0", Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.2/24")}}
	dual := Path{Name: "wlan0", Addrs: append(four.Addrs, netip.MustParsePrefix("2001:db8::2/64"))}
	for _, c := range []struct {
		name  string
		path  Path
		files []string
		want  string
	}{
		{"its own", dual, []string{own, many}, "10.0.0.1:53 [fe80::1%wlan0]:53"},
		{"IPv4 alone", four, []string{own, many}, "10.0.0.1:53"},
		{"none of its own", four, []string{filepath.Join(dir, "none"), many}, "1.1.1.1:53 2.2.2.2:53 3.3.3.3:53"},
		{"a resolver on this machine", four, []string{filepath.Join(dir, "none"), stub, many}, "1.1.1.1:53 2.2.2.2:53 3.3.3.3:53"},
		{"none at all", four, []string{stub}, ""},
	} {
		var got []string
		for _, s := range nameservers(c.path, c.files) {
			got = append(got, s.String())
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s: got %q, want %q", c.name, text, c.want)
		}
	}
}

func FuzzParseResolvConf(f *testing.F) {
	f.Add("nameserver 1.1.1.1\n")
	f.Add("# x\n\nnameserver\nnameserver x y\nnameserver\t::1 # y\nNAMESERVER 1.2.3.4")
	f.Add("nameserver fe80::1%wlan0\r\nnameserver ::ffff:1.2.3.4")
	f.Fuzz(func(t *testing.T, text string) {
		for _, a := range parseResolvConf(text) {
			if !a.IsValid() || a.Is4In6() {
				t.Errorf("%q: got %v", text, a)
			}
		}
	})
}
