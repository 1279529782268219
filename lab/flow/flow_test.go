package flow

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// loopback returns n addresses of this machine with one free port.
func loopback(n int) []netip.AddrPort {
	a := netip.MustParseAddr("127.0.0.1")
	var list []netip.AddrPort
	for range n {
		list = append(list, netip.AddrPortFrom(a, 29173))
		a = a.Next()
	}
	return list
}

func TestFlowOverTCP(t *testing.T) {
	for _, transport := range []Transport{
		{Protocol: TCP, Connections: 1},
		{Protocol: TCP, Congestion: "cubic", Connections: 3},
	} {
		t.Run(transport.String(), func(t *testing.T) {
			f, err := Open(t.Context(), Options{Transport: transport, From: Here{}, To: Here{}, Remote: loopback(1)})
			if err != nil {
				t.Fatal(err)
			}
			var origin time.Time
			onset := func() error { origin = time.Now(); return nil }
			const length = 500 * time.Millisecond
			r, err := f.Run(t.Context(), length, onset)
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(origin); took > 2*length {
				t.Errorf("took %v, want %v", took, length)
			}
			if got := len(r.Series.Rates); got != 5 {
				t.Errorf("slots: got %d, want 5", got)
			}
			for i, rate := range r.Series.Rates {
				if rate < 1000 {
					t.Errorf("slot %d: got %.0f KB/s, want more than 1000", i, rate)
				}
			}
			if r.Sent == 0 || r.RTT[2] == 0 {
				t.Errorf("got %d segments and round trip %v, want both known", r.Sent, r.RTT[2])
			}
			if loss := r.Loss(); loss < 0 || loss > 0.01 {
				t.Errorf("loss on the loopback: got %v, want none", loss)
			}
		})
	}
}

func TestOpenSaysWhatIsMissing(t *testing.T) {
	for _, c := range []struct {
		transport Transport
		want      string
	}{
		{Transport{Protocol: TCP, Congestion: "luck", Connections: 1}, "set congestion control luck"},
		{Transport{Protocol: "pigeon", Connections: 1}, `unknown protocol "pigeon"`},
		{Transport{Protocol: TCP}, "no connection"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := Open(ctx, Options{Transport: c.transport, From: Here{}, To: Here{}, Remote: loopback(1)})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %v, want %q in it", c.transport, err, c.want)
		}
	}
}
