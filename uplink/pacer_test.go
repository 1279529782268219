package uplink

import (
	"testing"
	"time"
)

// road is a path with a queue and, at its end, a transport that acknowledges
// every other packet, and a lone one 40 ms later.
type road struct {
	rate   float64       // bytes a second
	trip   time.Duration // round trip without a queue
	jitter time.Duration // at most so much more, in turn
	burst  int           // bytes that pass at once
	late   time.Duration // timers are late, at most, in turn
	timers int
	// window is the transport's congestion window, bytes, 0 for none. It grows by a
	// packet for each acknowledgement that finds it full (RFC 9260, section 7.2.1).
	window int

	out     uint64
	free    time.Time    // when the queue is empty
	waiting []int        // bytes of packets that the window does not let go yet
	flight  int          // bytes of packets
	packets []roadPacket // on their way
	count   int
}

type roadPacket struct {
	bytes int
	acked time.Time
	lone  bool
}

const roadPacketBytes = 1448

// send gives the transport a frame.
func (r *road) send(now time.Time, bytes int) {
	r.out += uint64(bytes)
	for ; bytes > 0; bytes -= roadPacketBytes {
		r.waiting = append(r.waiting, min(bytes, roadPacketBytes))
	}
	r.transmit(now)
}

// transmit puts what the window lets go into the queue.
func (r *road) transmit(now time.Time) {
	for len(r.waiting) > 0 && (r.window == 0 || r.flight < r.window) {
		n := r.waiting[0]
		r.waiting = r.waiting[1:]
		r.flight += n
		if r.free.Before(now) {
			r.free = now
		}
		if r.burst >= n {
			r.burst -= n
		} else {
			r.free = r.free.Add(time.Duration(float64(n) / r.rate * float64(time.Second)))
		}
		r.count++
		p := roadPacket{bytes: n, acked: r.free.Add(r.trip + r.jitter*time.Duration(r.count*37%101)/100)}
		if i := len(r.packets) - 1; i >= 0 && r.packets[i].lone {
			if p.acked.Before(r.packets[i].acked) {
				r.packets[i].acked = p.acked
			}
			r.packets[i].lone = false
		} else {
			p.acked, p.lone = p.acked.Add(40*time.Millisecond), true
		}
		r.packets = append(r.packets, p)
	}
}

// unsent is how many bytes wait for the window.
func (r *road) unsent() int {
	sum := 0
	for _, n := range r.waiting {
		sum += n
	}
	return sum
}

// info is what a carrier over the road tells.
func (r *road) info(now time.Time) Info {
	for len(r.packets) > 0 && !r.packets[0].acked.After(now) {
		p := r.packets[0]
		r.packets = r.packets[1:]
		full := r.flight >= r.window
		r.flight -= p.bytes
		if r.window > 0 && full {
			r.window += p.bytes
		}
		r.transmit(p.acked)
	}
	return Info{BytesOut: r.out, Packet: roadPacketBytes, Window: r.window, Unacked: r.flight + r.unsent()}
}

// drain sends a backlog for a while, in frames of 20 ms, and returns what part of
// the road's rate was used and the longest that an alarm would have waited.
func (r *road) drain(p *pacer, now time.Time, span time.Duration) (end time.Time, used float64, longest time.Duration) {
	start, out, end := now, r.out, now.Add(span)
	for now.Before(end) {
		p.observe(now, r.info(now))
		if r.unsent() >= unsent(p.rate()) { // the write blocks
			now = now.Add(3 * time.Millisecond)
			continue
		}
		if wait := p.wait(now); wait > 0 {
			r.timers++
			now = now.Add(wait + r.late*time.Duration(r.timers*37%101)/100)
			continue
		}
		size := max(frameLeast, int(p.rate()*occupy.Seconds()))
		p.sent(now, size)
		r.send(now, size)
		longest = max(longest, r.free.Sub(now))
		now = now.Add(100 * time.Microsecond) // as building and writing it does
	}
	return now, (float64(r.out-out) - max(0, r.free.Sub(now).Seconds())*r.rate) / (now.Sub(start).Seconds() * r.rate), longest
}

// On paths of all kinds the queue is short from the first frame on, and the path
// is kept busy.
func TestPacer(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name    string
		road    road
		used    float64       // at least, after the first seconds
		first   time.Duration // longest wait of an alarm in the first seconds, at most
		longest time.Duration // and afterwards
	}{
		{"64 kbit/s, 100 ms", road{rate: 8e3, trip: 100 * ms}, 0.97, 1600 * ms, 1000 * ms},
		{"256 kbit/s, no delay", road{rate: 32e3}, 0.97, 600 * ms, 340 * ms},
		{"256 kbit/s, 60 ms", road{rate: 32e3, trip: 60 * ms}, 0.97, 600 * ms, 300 * ms},
		{"256 kbit/s, 300 ms", road{rate: 32e3, trip: 300 * ms}, 0.97, 800 * ms, 450 * ms},
		{"256 kbit/s behind a bucket", road{rate: 32e3, burst: 16 << 10}, 0.97, 600 * ms, 380 * ms},
		{"2 Mbit/s, 60 ms", road{rate: 250e3, trip: 60 * ms}, 0.97, 220 * ms, 110 * ms},
		{"2 Mbit/s, 60 ms and up to 60 more", road{rate: 250e3, trip: 60 * ms, jitter: 60 * ms}, 0.95, 300 * ms, 150 * ms},
		{"2 Mbit/s, 60 ms, busy gateway", road{rate: 250e3, trip: 60 * ms, late: 60 * ms}, 0.97, 330 * ms, 200 * ms},
		{"2 Mbit/s, 60 ms, very busy gateway", road{rate: 250e3, trip: 60 * ms, late: 150 * ms}, 0.97, 400 * ms, 200 * ms},
		{"20 Mbit/s, 60 ms, busy gateway", road{rate: 2500e3, trip: 60 * ms, late: 60 * ms}, 0.97, 300 * ms, 200 * ms},
		{"20 Mbit/s, 5 ms", road{rate: 2500e3, trip: 5 * ms}, 0.97, 150 * ms, 80 * ms},
		{"20 Mbit/s, 60 ms", road{rate: 2500e3, trip: 60 * ms}, 0.97, 250 * ms, 90 * ms},
		{"20 Mbit/s, 300 ms", road{rate: 2500e3, trip: 300 * ms}, 0.97, 550 * ms, 280 * ms},
		{"5 Mbit/s, 100 ms, small window", road{rate: 625e3, trip: 100 * ms, window: 4380}, 0.97, 250 * ms, 100 * ms},
		{"2 Mbit/s, 400 ms, small window", road{rate: 250e3, trip: 400 * ms, window: 4380}, 0.97, 650 * ms, 400 * ms},
		{"200 Mbit/s, 1 ms", road{rate: 25e6, trip: ms}, 0.97, 150 * ms, 80 * ms},
	} {
		r, p := c.road, &pacer{}
		now, _, first := r.drain(p, time.Unix(1000, 0), 5*time.Second)
		_, used, longest := r.drain(p, now, 25*time.Second)
		t.Logf("%-34s used %.3f, waits: first %v, then %v; base %v, jitter %v", c.name, used, first, longest, p.base, p.jitter)
		if used < c.used {
			t.Errorf("%s: used %.3f of the path, want %.3f", c.name, used, c.used)
		}
		if first > c.first || longest > c.longest {
			t.Errorf("%s: waits %v at first and %v later, want at most %v and %v", c.name, first, longest, c.first, c.longest)
		}
	}
}

// F16: a path changes under way, and the pacer follows.
func TestPacerFollows(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name    string
		before  road
		rate    float64
		trip    time.Duration
		longest time.Duration // wait of an alarm afterwards
	}{
		{"slower", road{rate: 2500e3, trip: 60 * ms}, 32e3, 60 * ms, 380 * ms},
		{"faster", road{rate: 32e3, trip: 60 * ms}, 2500e3, 60 * ms, 110 * ms},
		{"farther", road{rate: 250e3, trip: 20 * ms}, 250e3, 300 * ms, 300 * ms},
		{"nearer", road{rate: 250e3, trip: 300 * ms}, 250e3, 20 * ms, 140 * ms},
	} {
		r, p := c.before, &pacer{}
		now, _, _ := r.drain(p, time.Unix(1000, 0), 30*time.Second)
		r.rate, r.trip = c.rate, c.trip
		now, _, _ = r.drain(p, now, 15*time.Second)
		_, used, longest := r.drain(p, now, 20*time.Second)
		if used < 0.97 || longest > c.longest {
			t.Errorf("%s: used %.3f of the path, waits up to %v, want 0.97 and %v", c.name, used, longest, c.longest)
		}
	}
}

// A carrier that cannot tell what is acknowledged is not held up.
func TestPacerWithoutKnowledge(t *testing.T) {
	p := &pacer{}
	now := time.Unix(1000, 0)
	for i := range 1000 {
		p.observe(now, Info{BytesOut: uint64(i) * 4096, Unacked: -1})
		if wait := p.wait(now); wait != 0 {
			t.Fatalf("frame %d: got a wait of %v", i, wait)
		}
		p.sent(now, 4096)
	}
	if got := p.frameRate(); got != 0 {
		t.Errorf("rate: got %.0f, want it unknown", got)
	}
}
