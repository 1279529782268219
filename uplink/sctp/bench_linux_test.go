//go:build !386

package sctp

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"testing"
	"time"
)

// BenchmarkThroughput measures payload over the lossy path, KB/s, for
// docs/sctp.md; run it with -benchtime 1x.
func BenchmarkThroughput(b *testing.B) {
	with := func(change func(*timers)) Tuning {
		t := Tuning{timers: appliance()}
		change(&t.timers)
		return t
	}
	for _, c := range []struct {
		name   string
		tuning Tuning
		limit  int
	}{
		{"kernel", KernelDefaults(), 0},
		{"appliance", Tuning{}, 0},
		{"limit", Tuning{}, 10_000},
		{"sack2", with(func(t *timers) { t.sackEvery = 2 }), 0},
		{"rto100", with(func(t *timers) { t.least, t.initial = 100*time.Millisecond, 200*time.Millisecond }), 0},
		{"burst4", with(func(t *timers) { t.burst = 4 }), 0},
	} {
		for _, rate := range []uint64{8, 2} {
			for _, loss := range []float32{0, 10, 20} {
				b.Run(fmt.Sprintf("%s/%d_Mbit/loss=%v", c.name, rate, loss), func(b *testing.B) {
					for range b.N {
						got, packet := throughput(b, c.tuning, c.limit, rate*1_000_000, loss)
						b.ReportMetric(got, "KB/s")
						b.ReportMetric(packet, "B/packet")
					}
				})
			}
		}
	}
}

// BenchmarkFailover measures the longest time without delivery when the primary
// path dies without a word under a message every 10 ms, at a round trip of 20 ms.
func BenchmarkFailover(b *testing.B) {
	for _, c := range []struct {
		name   string
		tuning Tuning
		within time.Duration
	}{{"appliance", Tuning{}, 10 * time.Second}, {"kernel", KernelDefaults(), 75 * time.Second}} {
		b.Run(c.name, func(b *testing.B) {
			for range b.N {
				way := shape{delay: 10 * time.Millisecond}
				p := newPair(b, c.tuning, way, way)
				p.await(b, "both paths confirmed", confirmed)
				ctx, cancel := context.WithTimeout(b.Context(), c.within)
				result := p.flow(b, ctx, 10*time.Millisecond)
				after(b, 2*time.Second)
				p.shape(b, 0, shape{delay: 10 * time.Millisecond, loss: 100})
				r := <-result
				cancel()
				b.ReportMetric(float64(r.longestGap.Milliseconds()), "ms-gap")
				b.ReportMetric(float64(r.messages), "messages")
			}
		})
	}
}

func throughput(t testing.TB, tuning Tuning, limit int, bits uint64, loss float32) (rate, packet float64) {
	gateway, collector, local, remote := lossyPath(t, bits, loss)
	near, far := connect(t, gateway, collector, tuning, Options{
		Local: []netip.Addr{local}, Remote: []netip.AddrPort{remote}, Tuning: tuning,
	})
	near.LimitUnsent(limit)
	go func() {
		for block := make([]byte, 16<<10); ; {
			if _, err := near.Write(block); err != nil {
				return
			}
		}
	}()
	const warm, measured = time.Second, 5 * time.Second
	start := time.Now()
	far.SetReadDeadline(start.Add(warm + measured))
	block, total := make([]byte, 64<<10), 0
	for {
		n, err := far.Read(block)
		if time.Since(start) > warm {
			total += n
		}
		if err == io.EOF || err != nil {
			break
		}
	}
	near.Close()
	far.Close()
	bytes, packets := gateway.count(t, "up")
	return float64(total) / 1000 / measured.Seconds(), float64(bytes) / float64(packets)
}
