package sctp

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// The kernel's offsets, as compilers gave them for its header.
func TestLayouts(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("needs a little-endian machine: the vectors are")
	}
	v4 := netip.MustParseAddrPort("10.1.2.3:7443")
	v6 := netip.MustParseAddrPort("[2001:db8::1]:7443")
	at := func(size int, fields map[int][]byte) []byte {
		b := make([]byte, size)
		for offset, field := range fields {
			copy(b[offset:], field)
		}
		return b
	}
	in4 := []byte{2, 0, 0x1d, 0x13, 10, 1, 2, 3}
	in6 := []byte{10, 0, 0x1d, 0x13, 0, 0, 0, 0, 0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}
	anywhere := []byte{2, 0, 0, 0}
	for _, c := range []struct {
		name      string
		got, want []byte
	}{
		{"initmsg", initMsg(1, 8, time.Second), []byte{1, 0, 1, 0, 8, 0, 0xe8, 3}},
		{"rtoinfo", rtoInfo(300*time.Millisecond, 200*time.Millisecond, time.Second),
			[]byte{0, 0, 0, 0, 0x2c, 1, 0, 0, 0xe8, 3, 0, 0, 200, 0, 0, 0}},
		{"assocparams", assocParams(40), at(20, map[int][]byte{4: {40}})},
		{"sack_info", sackInfo(20*time.Millisecond, 2), []byte{0, 0, 0, 0, 20, 0, 0, 0, 2, 0, 0, 0}},
		{"assoc_value", assocValue(16), []byte{0, 0, 0, 0, 16, 0, 0, 0}},
		{"prim of IPv4", prim(v4), at(132, map[int][]byte{4: in4})},
		{"prim of IPv6", prim(v6), at(132, map[int][]byte{4: in6})},
		{"paddrparams", pathParams{path: v4, heartbeat: time.Second, timeouts: 4, mtu: 1280, flags: 0x11}.bytes(),
			at(156, map[int][]byte{4: in4, 132: {0xe8, 3}, 136: {4}, 138: {0, 5}, 146: {0x11}})},
		{"paddrthlds_v2, 64 bits", thresholds(144, 4, 1, 3), at(144, map[int][]byte{8: anywhere, 136: {4, 0, 1, 0, 3, 0}})},
		{"paddrthlds_v2, 32 bits", thresholds(140, 4, 1, 3), at(140, map[int][]byte{4: anywhere, 132: {4, 0, 1, 0, 3, 0}})},
	} {
		if !bytes.Equal(c.got, c.want) {
			t.Errorf("%s:\n got %x\nwant %x", c.name, c.got, c.want)
		}
	}

	path := at(152, map[int][]byte{4: in4, 132: {1}, 136: {0x1c, 0x11}, 140: {25}, 144: {200}, 148: {0xdc, 5}})
	wantPath := pathInfo{path: v4, state: pathFailing, window: 4380, srtt: 25, rto: 200 * time.Millisecond, mtu: 1500}
	if got, err := parsePathInfo(path); err != nil || got != wantPath {
		t.Errorf("paddrinfo: got %+v, %v, want %+v", got, err, wantPath)
	}
	wantStatus := status{state: assocEstablished, outstanding: 300, fragment: 1452, primary: wantPath}
	got, err := parseStatus(at(176, map[int][]byte{4: {4}, 12: {0x2c, 1}, 20: {0xac, 5}, 24: path}))
	if err != nil || got != wantStatus {
		t.Errorf("status: got %+v, %v, want %+v", got, err, wantStatus)
	}
	counted, err := parseCounters(at(256, map[int][]byte{176: {7}, 208: {1}, 224: {0, 1}}))
	if want := (counters{sent: 257, resent: 7}); err != nil || counted != want {
		t.Errorf("assoc_stats: got %+v, %v, want %+v", counted, err, want)
	}
	list, err := sockaddrs(append([]byte{0, 0, 0, 0, 2, 0, 0, 0}, append(at(16, map[int][]byte{0: in4}), at(28, map[int][]byte{0: in6})...)...))
	if err != nil || len(list) != 2 || list[0] != v4 || list[1] != v6 {
		t.Errorf("getaddrs: got %v, %v, want %v and %v", list, err, v4, v6)
	}
}

func TestParseEvent(t *testing.T) {
	path := func(state byte) []byte {
		b := make([]byte, paddrChangeSize)
		native.PutUint16(b, typePaddrChange)
		putSockaddr(b[8:], netip.MustParseAddrPort("10.1.2.3:7443"))
		native.PutUint32(b[136:], uint32(state))
		return b
	}
	association := func(state uint16) []byte {
		b := make([]byte, assocChangeSize)
		native.PutUint16(b, typeAssocChange)
		native.PutUint16(b[8:], state)
		return b
	}
	other := make([]byte, 16)
	native.PutUint16(other, 0x8005)
	for _, c := range []struct {
		name string
		note []byte
		want string // empty for none
		err  string
	}{
		{"path up", path(0), "path up 10.1.2.3", ""},
		{"path down", path(1), "path down 10.1.2.3", ""},
		{"path removed", path(2), "path removed 10.1.2.3", ""},
		{"path added", path(3), "path added 10.1.2.3", ""},
		{"path primary", path(4), "path primary 10.1.2.3", ""},
		{"path confirmed", path(5), "path confirmed 10.1.2.3", ""},
		{"path failing", path(6), "path failing 10.1.2.3", ""},
		{"path in a state of the future", path(7), "", ""},
		{"up", association(0), "association up", ""},
		{"lost", association(1), "association lost", ""},
		{"restarted", association(2), "association restarted", ""},
		{"ended", association(3), "association ended", ""},
		{"shutdown", other, "", ""},
		{"empty", nil, "", "0 bytes"},
		{"path cut short", path(0)[:100], "", "100 bytes"},
	} {
		e, ok, err := parseEvent(c.note)
		switch {
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)), c.err == "" && err != nil:
			t.Errorf("%s: got error %v, want %q", c.name, err, c.err)
		case ok != (c.want != ""), ok && e.String() != c.want:
			t.Errorf("%s: got %v, %v, want %q", c.name, e, ok, c.want)
		}
	}
}

func TestEndpoint(t *testing.T) {
	for _, c := range []struct{ addresses, want, err string }{
		{"10.0.0.1:7443 10.0.1.1:7443", "10.0.0.1+10.0.1.1:7443", ""},
		{"[2001:db8::1]:1 [::ffff:10.0.0.1]:1", "[2001:db8::1]+10.0.0.1:1", ""},
		{"10.0.0.1:1 10.0.1.1:2", "", "same"},
		{"10.0.0.1:1 10.0.0.1:1", "", "twice"},
		{"", "", "no address"},
	} {
		var all []netip.AddrPort
		for _, a := range strings.Fields(c.addresses) {
			all = append(all, netip.MustParseAddrPort(a))
		}
		got, err := endpoint(all)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q: got error %v, want %q", c.addresses, err, c.err)
			}
		} else if err != nil || got.String() != c.want {
			t.Errorf("%q: got %s, %v, want %s", c.addresses, got, err, c.want)
		}
	}
}

// The floor stays above a round trip and what a peer may wait before it
// acknowledges, and a death of the primary is noticed in time.
func TestFloor(t *testing.T) {
	v := appliance()
	for _, c := range []struct{ rtt, want time.Duration }{
		{0, 200 * time.Millisecond},
		{100 * time.Millisecond, 200 * time.Millisecond},
		{500 * time.Millisecond, 700 * time.Millisecond},
	} {
		if got := v.floor(c.rtt); got != c.want || got < c.rtt+v.sackDelay {
			t.Errorf("floor at %v: got %v, want %v", c.rtt, got, c.want)
		}
		if got := v.ceiling(c.want); got < time.Second || got < 2*c.want {
			t.Errorf("ceiling at %v: got %v, want at least a second and twice the floor", c.rtt, got)
		}
	}
}

// Whatever the kernel of tomorrow says, nothing panics.
func FuzzKernelStructures(f *testing.F) {
	f.Add([]byte{})
	f.Add(prim(netip.MustParseAddrPort("10.1.2.3:7443")))
	f.Add(append(assocValue(2), prim(netip.MustParseAddrPort("[2001:db8::1]:7443"))[4:]...))
	note := make([]byte, paddrChangeSize)
	native.PutUint16(note, typePaddrChange)
	putSockaddr(note[8:], netip.MustParseAddrPort("10.1.2.3:7443"))
	f.Add(note)
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, size, err := sockaddr(b); err == nil {
			again := make([]byte, sockaddrSize)
			putSockaddr(again, a)
			if back, _, err := sockaddr(again); err != nil || back != a || size > len(b) {
				t.Errorf("address %v of %d bytes: got back %v, %v", a, size, back, err)
			}
		}
		if all, err := sockaddrs(b); err == nil && len(all)*16 > len(b) {
			t.Errorf("%d addresses out of %d bytes", len(all), len(b))
		}
		if e, ok, err := parseEvent(b); ok && (err != nil || e.String() == "") {
			t.Errorf("event %v with error %v", e, err)
		}
		_, _ = parsePathInfo(b)
		_, _ = parseStatus(b)
		_, _ = parseCounters(b)
	})
}
