package tunnel

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/uplink/carriertest"
	"sluice/uplink/wire"
)

func TestAsk(t *testing.T) {
	lease := func(local, remote string) wire.TunnelLease {
		return wire.TunnelLease{Local: netip.MustParsePrefix(local), Remote: netip.MustParseAddr(remote)}
	}
	reply := func(l ...wire.TunnelLease) []byte {
		return wire.AppendTunnelReply(nil, wire.TunnelReply{Key: wire.TunnelKey{1}, Port: 51820, Tunnels: l})
	}
	good := lease("10.0.0.2/32", "10.0.0.1")
	for _, c := range []struct {
		name   string
		answer []byte // nil: the collector hangs up
		want   string // of the error, "" for none
	}{
		{"granted", reply(good), ""},
		{"refused", wire.AppendReject(nil, wire.Reject{Code: wire.CodeTunnel, Reason: "network is full", RetryAfter: 5000}), "refused by the collector: network is full"},
		{"hung up", nil, "older than tunnels"},
		{"other message", wire.AppendPing(nil, 1), "type 6"},
		{"too many", reply(good, lease("10.0.1.2/32", "10.0.1.1")), "2 tunnels for 1"},
		{"a network", reply(lease("10.0.0.2/24", "10.0.0.1")), "no addresses for a tunnel"},
		{"loopback", reply(lease("10.0.0.2/32", "127.0.0.1")), "no addresses for a tunnel"},
		{"itself", reply(lease("10.0.0.2/32", "10.0.0.2")), "used twice"},
		{"no key", wire.AppendTunnelReply(nil, wire.TunnelReply{Port: 1, Tunnels: []wire.TunnelLease{good}}), "no key"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, remote := carriertest.Pipe(carriertest.Link{Delay: time.Millisecond}, "collector", "gw-1")
				go func() {
					wire.NewReader(remote, wire.MaxHandshake).Next()
					remote.Write(c.answer)
					remote.Close()
				}()
				req := wire.TunnelRequest{Gateway: "gw-1", Uplinks: []wire.TunnelUplink{{Name: "wlan0", Key: wire.TunnelKey{2}}}}
				got, err := Ask(t.Context(), near, req)
				switch {
				case c.want == "" && (err != nil || len(got.Tunnels) != 1 || got.Tunnels[0] != good):
					t.Errorf("got %+v, %v", got, err)
				case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
					t.Errorf("got %v, want an error that says %q", err, c.want)
				}
				var refused *RefusedError
				if c.name == "refused" && (!errors.As(err, &refused) || refused.RetryAfter != 5*time.Second) {
					t.Errorf("got %+v, want to be asked to wait for 5 s", err)
				}
			})
		})
	}
}

// A collector that says nothing is not waited for.
func TestAskSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct{ allow, want time.Duration }{{time.Minute, askTimeout}, {time.Second, time.Second}} {
			near, remote := carriertest.Pipe(carriertest.Link{}, "collector", "gw-1")
			ctx, cancel := context.WithTimeout(t.Context(), c.allow)
			begin := time.Now()
			_, err := Ask(ctx, near, wire.TunnelRequest{})
			if took := time.Since(begin); err == nil || took != c.want {
				t.Errorf("got %v after %v, want an error after %v", err, took, c.want)
			}
			cancel()
			remote.Close()
		}
	})
}
