package collector_test

import (
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/collector"
	"sluice/uplink/carriertest"
	"sluice/uplink/wire"
)

// leases answers requests for tunnels, and remembers who asked.
type leases struct {
	reply   wire.TunnelReply
	err     error
	gateway string
	request wire.TunnelRequest
}

func (l *leases) Lease(gateway string, req wire.TunnelRequest) (wire.TunnelReply, error) {
	l.gateway, l.request = gateway, req
	return l.reply, l.err
}

// A carrier whose first message asks for a tunnel gets an answer, and ends.
func TestTunnelRequest(t *testing.T) {
	reply := wire.TunnelReply{Key: wire.TunnelKey{7}, Port: 51820, Tunnels: []wire.TunnelLease{
		{Local: netip.MustParsePrefix("10.213.0.2/32"), Remote: netip.MustParseAddr("10.213.0.1")}}}
	for _, c := range []struct {
		name    string
		tunnels collector.Tunnels
		gateway string
		code    wire.Code
		reason  string // of a Reject; "" if there is to be none
	}{
		{"granted", &leases{reply: reply}, gateway, 0, ""},
		{"no tunnels here", nil, gateway, wire.CodeTunnel, "no tunnels"},
		{"another's name", &leases{reply: reply}, "gw-2", wire.CodeIdentity, "gw-2"},
		{"full", &leases{err: errors.New("network is full")}, gateway, wire.CodeTunnel, "network is full"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				far := startCollector(t, newOutput("a"))
				far.stop()
				far.opt.Tunnels = c.tunnels
				far.start()
				defer far.stop()
				near, remote := carriertest.Pipe(carriertest.Link{Delay: time.Millisecond}, "collector", gateway)
				far.ln.carriers <- remote
				req := wire.TunnelRequest{Gateway: c.gateway, Uplinks: []wire.TunnelUplink{{Name: "wlan0", Key: wire.TunnelKey{1}}}}
				g := &gate{t: t, end: near, in: wire.NewReader(near, wire.MaxHandshake)}
				if _, err := near.Write(wire.AppendTunnelRequest(nil, req)); err != nil {
					t.Fatal(err)
				}
				typ, body := g.next()
				if c.reason == "" {
					got, err := wire.DecodeTunnelReply(body)
					if typ != wire.TypeTunnelReply || err != nil || !reflect.DeepEqual(got, reply) {
						t.Errorf("type %d, %+v, %v, want %+v", typ, got, err, reply)
					}
					if l := c.tunnels.(*leases); l.gateway != gateway || !reflect.DeepEqual(l.request, req) {
						t.Errorf("leased to %s: %+v, want %+v", l.gateway, l.request, req)
					}
				} else {
					got, err := wire.DecodeReject(body)
					if typ != wire.TypeReject || err != nil || got.Code != c.code || !strings.Contains(got.Reason, c.reason) {
						t.Errorf("type %d, %+v, %v, want a reject %d that says %q", typ, got, err, c.code, c.reason)
					}
				}
				near.SetReadDeadline(time.Now().Add(time.Minute))
				if n, err := near.Read(make([]byte, 1)); n != 0 || err == nil {
					t.Errorf("after the answer: %d bytes, %v, want the carrier's end", n, err)
				}
				near.Close()
			})
		})
	}
}
