package wire

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"
)

func TestTunnelBounds(t *testing.T) {
	body := func(msg []byte) []byte {
		_, body, err := NewReader(bytes.NewReader(msg), MaxHandshake).Next()
		if err != nil {
			t.Fatal(err)
		}
		return append([]byte(nil), body...)
	}
	request := func(names ...string) []byte {
		r := TunnelRequest{Gateway: "gw-1"}
		for _, n := range names {
			r.Uplinks = append(r.Uplinks, TunnelUplink{Name: n})
		}
		return body(AppendTunnelRequest(nil, r))
	}
	for _, c := range []struct {
		name string
		body []byte
	}{
		{"no uplinks", request()},
		{"too many uplinks", request("a", "b", "c", "d", "e")},
		{"no name", request("")},
		{"name too long", request("enx0123456789abc")},
		{"key cut off", request("wlan0")[:30]},
	} {
		if r, err := DecodeTunnelRequest(c.body); !errors.Is(err, ErrMalformed) {
			t.Errorf("request, %s: got %+v, %v, want %v", c.name, r, err, ErrMalformed)
		}
	}
	good := TunnelLease{Local: netip.MustParsePrefix("10.0.0.2/32"), Remote: netip.MustParseAddr("10.0.0.1")}
	reply := func(port uint16, leases ...TunnelLease) []byte {
		return body(AppendTunnelReply(nil, TunnelReply{Port: port, Tunnels: leases}))
	}
	long := reply(1, good)
	long[len(long)-6] = 33 // the prefix's bits
	for _, c := range []struct {
		name string
		body []byte
	}{
		{"no port", reply(0, good)},
		{"no tunnels", reply(1)},
		{"too many tunnels", reply(1, good, good, good, good, good)},
		{"no address", reply(1, TunnelLease{Remote: good.Remote})},
		{"prefix too long", long},
		{"address cut off", reply(1, good)[:38]},
	} {
		if r, err := DecodeTunnelReply(c.body); !errors.Is(err, ErrMalformed) {
			t.Errorf("reply, %s: got %+v, %v, want %v", c.name, r, err, ErrMalformed)
		}
	}
}
