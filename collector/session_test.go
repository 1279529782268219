package collector_test

import (
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sluice/reading"
	"sluice/uplink"
	"sluice/uplink/carriertest"
)

// F1: the link is cut without a trace after some of the readings were delivered,
// and comes back 90 s later. All arrive, once.
func TestCutWithoutTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, out := newQueue(), newOutput("a")
		far := startCollector(t, out)
		defer far.stop()
		var up atomic.Bool
		up.Store(true)
		p := &path{link: carriertest.Link{Delay: 20 * time.Millisecond}, to: func() *listener {
			if up.Load() {
				return far.now.Load()
			}
			return nil
		}}
		n := startUplink(q, nil, p)
		defer n.stop()
		q.add(reading.Live, 2)
		within(t, 5*time.Second, "first two", func() bool { return out.count(stream(reading.Live)) == 2 })
		up.Store(false)
		p.cut()
		for range 10 {
			q.add(reading.Live, 1)
		}
		within(t, time.Minute, "loss is noticed", func() bool { return !n.Delivering() })
		select {
		case <-time.After(90 * time.Second):
		}
		up.Store(true)
		within(t, 40*time.Second, "all acknowledged", func() bool { return q.waiting() == 0 })
		out.check(t, stream(reading.Live), 12, nil)
		if !n.Delivering() {
			t.Error("not delivering after the link is back")
		}
	})
}

// F2: the collector is away while readings come, and gets them all in order when
// it is there.
func TestCollectorComesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, out := newQueue(), newOutput("a")
		var there atomic.Pointer[listener]
		p := &path{to: there.Load}
		n := startUplink(q, nil, p)
		defer n.stop()
		for range 12 {
			q.add(reading.Live, 1)
			q.add(reading.Backfill, 3)
		}
		<-time.After(10 * time.Minute)
		if st := n.Stats(); st.State != uplink.Connecting || st.Reason == "" {
			t.Errorf("without a collector: state %q, reason %q", st.State, st.Reason)
		}
		// Ten minutes of capped backoff with jitter: neither a storm nor a give-up.
		if got := n.Stats().Retries; got < 20 || got > 120 {
			t.Errorf("%d attempts in ten minutes, want between 20 and 120", got)
		}
		far := startCollector(t, out)
		defer far.stop()
		there.Store(far.ln)
		within(t, time.Minute, "all acknowledged", func() bool { return q.waiting() == 0 })
		out.check(t, stream(reading.Live), 12, nil)
		out.check(t, stream(reading.Backfill), 36, nil)
	})
}

// F3: a backlog drains in large frames at the link's speed; an alarm and live
// readings overtake it.
func TestAlarmOvertakesBacklog(t *testing.T) {
	for _, c := range []struct {
		name  string
		rate  int
		block int           // readings of each of the backlog's segments
		limit time.Duration // beyond the path's own delays
	}{
		{"2 Mbit/s", 250_000, 2000, 50 * time.Millisecond},
		{"256 kbit/s", 32_000, 300, 300 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, out := newQueue(), newOutput("a")
				for range 200 {
					q.add(reading.Backfill, c.block)
				}
				backlog := q.waiting()
				far := startCollector(t, out)
				defer far.stop()
				p := &path{link: carriertest.Link{Rate: c.rate, Delay: 25 * time.Millisecond}, to: far.now.Load}
				n := startUplink(q, func(o *uplink.Options) { o.MaxFrame = 256 << 10 }, p)
				defer n.stop()
				<-time.After(8 * time.Second)
				if got := out.count(stream(reading.Backfill)); got == 0 || got == backlog {
					t.Fatalf("after 8 s %d of %d: the backlog should be half way", got, backlog)
				}
				for i := range 5 {
					start := time.Now()
					q.add(reading.Alarm, 1)
					within(t, 5*time.Second, "alarm", func() bool { return out.count(stream(reading.Alarm)) == i+1 })
					took := time.Since(start)
					t.Logf("alarm took %v; link seen at %.0f frame bytes/s", took, n.Stats().Rate)
					if took > 25*time.Millisecond+c.limit {
						t.Errorf("alarm took %v, want at most %v", took, 25*time.Millisecond+c.limit)
					}
					start = time.Now()
					q.add(reading.Live, 1)
					within(t, 5*time.Second, "live", func() bool { return out.count(stream(reading.Live)) == i+1 })
					if took := time.Since(start); took > 75*time.Millisecond+c.limit {
						t.Errorf("live reading took %v, want at most %v", took, 75*time.Millisecond+c.limit)
					}
				}
				out.check(t, stream(reading.Backfill), uint64(out.count(stream(reading.Backfill))), nil)
			})
		})
	}
}

// deep is a carrier over a path that queues whatever it is given.
type deep struct{ uplink.Carrier }

func (deep) LimitUnsent(int) {}

// F3: a path that would take minutes of backlog in does not get it, so that an
// alarm overtakes at once from the first frame on.
func TestQueueInPathStaysShort(t *testing.T) {
	for _, c := range []struct {
		name          string
		rate          int
		first, longer time.Duration // than the path's delay takes an alarm, at most, in the first seconds and later
	}{
		{"256 kbit/s", 32_000, 500 * time.Millisecond, 250 * time.Millisecond},
		{"2 Mbit/s", 250_000, 250 * time.Millisecond, 100 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, out := newQueue(), newOutput("a")
				for range 300 {
					q.add(reading.Backfill, 2000)
				}
				far := startCollector(t, out)
				defer far.stop()
				const delay = 25 * time.Millisecond
				p := &path{
					link: carriertest.Link{Rate: c.rate, Delay: delay, Unsent: 1 << 30},
					to:   far.now.Load,
					wrap: func(c uplink.Carrier) uplink.Carrier { return deep{c} },
				}
				n := startUplink(q, func(o *uplink.Options) { o.MaxFrame = 256 << 10 }, p)
				defer n.stop()
				for i := range 25 {
					<-time.After(237 * time.Millisecond)
					start := time.Now()
					q.add(reading.Alarm, 1)
					within(t, time.Minute, "alarm", func() bool { return out.count(stream(reading.Alarm)) == i+1 })
					limit := c.longer
					if i < 10 {
						limit = c.first
					}
					if took := time.Since(start); took > delay+limit {
						t.Errorf("alarm %d took %v, want at most %v", i+1, took, delay+limit)
					}
				}
				if q.waiting() == 0 {
					t.Error("the backlog was gone before, so nothing was overtaken")
				}
			})
		})
	}
}

// Neither a long round trip nor an output that needs its time to make readings
// durable keeps a path from being filled.
func TestLongPathIsFilled(t *testing.T) {
	for _, c := range []struct {
		name          string
		delay, output time.Duration
	}{
		{"500 ms round trip", 250 * time.Millisecond, 0},
		{"output of 200 ms", 25 * time.Millisecond, 200 * time.Millisecond},
		{"both", 250 * time.Millisecond, 200 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, out := newQueue(), newOutput("a")
				out.delay = c.output
				for range 400 {
					q.add(reading.Backfill, 2000)
				}
				far := startCollector(t, out)
				defer far.stop()
				p := &path{link: carriertest.Link{Rate: 250_000, Delay: c.delay}, to: far.now.Load}
				n := startUplink(q, func(o *uplink.Options) { o.MaxFrame = 256 << 10 }, p)
				defer n.stop()
				<-time.After(8 * time.Second)
				before := n.Stats().BytesOut
				<-time.After(8 * time.Second)
				if q.waiting() == 0 {
					t.Fatal("the backlog was gone before the end")
				}
				if got := float64(n.Stats().BytesOut-before) / 8; got < 0.95*250_000 {
					t.Errorf("%.0f bytes/s on a path of 250000", got)
				}
			})
		})
	}
}

// F7: a collector that allows little in flight is obeyed, and everything still
// arrives on one carrier.
func TestWindowObeyed(t *testing.T) {
	for _, window := range []int{64, 1000, 20_000} {
		synctest.Test(t, func(t *testing.T) {
			q, out := newQueue(), newOutput("a")
			out.delay = time.Millisecond
			far := startCollector(t, out)
			far.stop()
			far.opt.Limits.Unacked = window
			far.start()
			defer far.stop()
			p := &path{link: carriertest.Link{Delay: time.Millisecond}, to: far.now.Load}
			for range 20 {
				q.add(reading.Live, 100)
				q.add(reading.Backfill, 100)
			}
			n := startUplink(q, nil, p)
			defer n.stop()
			within(t, 5*time.Minute, "all acknowledged", func() bool { return q.waiting() == 0 })
			out.check(t, stream(reading.Live), 2000, nil)
			out.check(t, stream(reading.Backfill), 2000, nil)
			if p.dials != 1 {
				t.Errorf("window of %d bytes: %d carriers, want 1", window, p.dials)
			}
		})
	}
}

// F13: a segment that the collector cannot read is set aside with its reason,
// and the queue behind it moves on.
func TestUnreadableSegment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, out := newQueue(), newOutput("a")
		far := startCollector(t, out)
		defer far.stop()
		q.add(reading.Live, 3)
		q.mu.Lock()
		q.addSegment(reading.Live, reading.Segment{Count: 4, Data: []byte("not a batch at all")})
		q.mu.Unlock()
		q.add(reading.Live, 3)
		n := startUplink(q, nil, &path{to: far.now.Load})
		defer n.stop()
		within(t, 10*time.Second, "all acknowledged", func() bool { return q.waiting() == 0 })
		out.check(t, stream(reading.Live), 10, func(seq uint64) bool { return 4 <= seq && seq <= 7 })
		if len(out.unreadable) != 1 || string(out.unreadable[0].Unreadable) != "not a batch at all" || out.unreadable[0].Reason == "" {
			t.Errorf("set aside: got %+v", out.unreadable)
		}
		if got := far.c.Stats().Sessions[0].Lanes[reading.Live].Unreadable; got != 4 {
			t.Errorf("unreadable readings: got %d, want 4", got)
		}
	})
}

// Readings that the quota removed leave a gap that stops nothing, also if they
// were in flight on a carrier that was lost.
func TestGaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, out := newQueue(), newOutput("a")
		out.broken = true
		far := startCollector(t, out)
		defer far.stop()
		p := &path{to: far.now.Load}
		for range 30 {
			q.add(reading.Live, 100)
		}
		q.remove(reading.Live, 150)
		n := startUplink(q, nil, p)
		defer n.stop()
		within(t, 10*time.Second, "all sent", func() bool { return n.Stats().Lanes[reading.Live].Sent == 3000 })
		far.stop() // what was sent is lost with it
		q.remove(reading.Live, 550)
		q.remove(reading.Live, 2999)
		out.set(func() { out.broken = false })
		far.start()
		within(t, time.Minute, "all acknowledged", func() bool { return q.waiting() == 0 })
		q.add(reading.Live, 100)
		within(t, time.Minute, "later ones acknowledged", func() bool { return q.waiting() == 0 })
		out.check(t, stream(reading.Live), 3100, func(seq uint64) bool {
			block := (seq - 1) / 100
			return block == 1 || block == 5 || block == 29
		})
	})
}

// An output that fails for a while gets everything later, nothing is
// acknowledged before, and the carrier stays; one that made a write and said it
// failed gets nothing twice.
func TestOutputFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, a, b := newQueue(), newOutput("a"), newOutput("b")
		far := startCollector(t, a, b)
		defer far.stop()
		p := &path{to: far.now.Load}
		n := startUplink(q, nil, p)
		defer n.stop()
		b.set(func() { b.broken = true })
		a.set(func() { a.lies = 2 })
		for range 10 {
			q.add(reading.Live, 5)
		}
		<-time.After(2 * time.Minute)
		if got := q.waiting(); got != 50 {
			t.Errorf("with one output down %d wait, want 50", got)
		}
		if n.Delivering() {
			t.Error("said to deliver while nothing is acknowledged")
		}
		if st := n.Stats(); st.State != uplink.Stalled {
			t.Errorf("state %q (%s), want %q", st.State, st.Reason, uplink.Stalled)
		} else if !strings.Contains(st.Reason, "outputs") {
			t.Errorf("stalled: %s, want the outputs named", st.Reason)
		}
		if got := far.c.Stats().Sessions[0].Lanes[reading.Live].Fault; got == "" {
			t.Error("the collector's status names no fault")
		}
		b.set(func() { b.broken = false })
		within(t, 10*time.Second, "all acknowledged", func() bool { return q.waiting() == 0 })
		a.check(t, stream(reading.Live), 50, nil)
		b.check(t, stream(reading.Live), 50, nil)
		within(t, time.Second, "delivering again", func() bool { return n.Stats().State == uplink.Delivering })
		if p.dials != 1 {
			t.Errorf("%d carriers, want 1: the only collector is given time", p.dials)
		}
	})
}

// With a second collector, one that does not acknowledge is left for it.
func TestFailOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, a, b := newQueue(), newOutput("a"), newOutput("b")
		first, second := startCollector(t, a), startCollector(t, b)
		defer first.stop()
		defer second.stop()
		q.add(reading.Live, 10)
		n := startUplink(q, nil, &path{to: first.now.Load}, &path{to: second.now.Load})
		defer n.stop()
		within(t, 5*time.Second, "first delivers", func() bool { return q.waiting() == 0 })
		a.set(func() { a.broken = true })
		q.add(reading.Live, 10)
		within(t, time.Minute, "second delivers", func() bool { return q.waiting() == 0 })
		a.check(t, stream(reading.Live), 10, nil)
		// The second never sees what the first made durable, and does not wait for it.
		b.check(t, stream(reading.Live), 20, func(seq uint64) bool { return seq <= 10 })
	})
}

// Two collectors that share an output: what one wrote, the other does not write
// again, even if it believed otherwise.
func TestConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, out := newQueue(), newOutput("shared")
		far := startCollector(t, out)
		defer far.stop()
		n := startUplink(q, nil, &path{to: far.now.Load})
		defer n.stop()
		q.add(reading.Live, 4)
		within(t, 5*time.Second, "delivered", func() bool { return q.waiting() == 0 })
		out.set(func() { // as if another collector had written 5 and 6
			s := stream(reading.Live)
			for seq := uint64(5); seq <= 6; seq++ {
				out.held[s] = append(out.held[s], got{seq: seq, reading: value(reading.Live, seq)})
			}
			out.last[s] = 6
		})
		q.add(reading.Live, 6)
		within(t, 5*time.Second, "delivered", func() bool { return q.waiting() == 0 })
		out.check(t, stream(reading.Live), 10, nil)
		if got := far.c.Stats().Conflicts; got != 1 {
			t.Errorf("conflicts: got %d, want 1", got)
		}
	})
}

// A collector that shuts down says so: what it has is acknowledged first, and
// the gateway goes on elsewhere at once.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, out := newQueue(), newOutput("a")
		out.delay = 200 * time.Millisecond
		far := startCollector(t, out)
		n := startUplink(q, nil, &path{to: far.now.Load})
		defer n.stop()
		q.add(reading.Live, 10)
		within(t, 5*time.Second, "sent", func() bool { return n.Stats().Frames > 0 })
		start := time.Now()
		far.stop()
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("stopping took %v", took)
		}
		out.check(t, stream(reading.Live), 10, nil)
		if got := q.waiting(); got != 0 {
			t.Errorf("%d written readings were not acknowledged before the end", got)
		}
		far.start()
		defer far.stop()
		q.add(reading.Live, 10)
		within(t, 5*time.Second, "delivered again", func() bool { return q.waiting() == 0 })
	})
}

// A path that dies while nothing is sent is noticed by a ping, which is all that
// an idle session costs.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, out := newQueue(), newOutput("a")
		far := startCollector(t, out)
		defer far.stop()
		p := &path{link: carriertest.Link{Delay: 30 * time.Millisecond}, to: far.now.Load}
		n := startUplink(q, nil, p)
		defer n.stop()
		within(t, 5*time.Second, "connected", n.Delivering)
		before := n.Stats()
		<-time.After(time.Hour)
		after := n.Stats()
		if got := after.BytesOut - before.BytesOut; got == 0 || got > 40*30 {
			t.Errorf("an idle hour took %d bytes, want 40 pings of at most 30", got)
		}
		if after.Retries != 0 || after.RTT < 60*time.Millisecond || after.RTT > 70*time.Millisecond {
			t.Errorf("after an hour: %d retries, round trip %v", after.Retries, after.RTT)
		}
		p.cut()
		within(t, 2*time.Minute, "loss is noticed", func() bool { return n.Stats().Retries > 0 })
	})
}

// A damaged store that was replaced while the uplink runs counts from 1 again,
// under a new epoch.
func TestStoreReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, out := newQueue(), newOutput("a")
		far := startCollector(t, out)
		defer far.stop()
		n := startUplink(q, nil, &path{to: far.now.Load})
		defer n.stop()
		q.add(reading.Live, 10)
		within(t, 5*time.Second, "delivered", func() bool { return q.waiting() == 0 })
		q.renew(78)
		q.add(reading.Live, 7)
		within(t, 10*time.Second, "delivered", func() bool { return q.waiting() == 0 })
		s := stream(reading.Live)
		out.check(t, s, 10, nil)
		s.Epoch = 78
		out.check(t, s, 7, nil)
	})
}

// A reading that no frame can hold is given up, counted, and stops nothing.
func TestOversize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, out := newQueue(), newOutput("a")
		far := startCollector(t, out)
		far.stop()
		far.opt.Limits.MaxFrame = 20_000
		far.start()
		defer far.stop()
		q.add(reading.Live, 1)
		q.mu.Lock()
		big := value(reading.Live, 2)
		big.Value = reading.Text(strings.Repeat("x", 50_000))
		q.addSegment(reading.Live, reading.Segment{Count: 1, Data: reading.AppendBatch(nil, []reading.Reading{big})})
		q.mu.Unlock()
		q.add(reading.Live, 1)
		n := startUplink(q, nil, &path{to: far.now.Load})
		defer n.stop()
		within(t, 10*time.Second, "all acknowledged", func() bool { return q.waiting() == 0 })
		out.check(t, stream(reading.Live), 3, func(seq uint64) bool { return seq == 2 })
		if got := n.Stats().Oversize; got != 1 {
			t.Errorf("given up: got %d, want 1", got)
		}
	})
}

// The uplink that shuts down waits for what is in flight.
func TestShutdownWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, out := newQueue(), newOutput("a")
		out.delay = 500 * time.Millisecond
		far := startCollector(t, out)
		defer far.stop()
		n := startUplink(q, nil, &path{to: far.now.Load})
		q.add(reading.Live, 10)
		within(t, 5*time.Second, "sent", func() bool { return n.Stats().Frames > 0 })
		n.stop()
		if got := q.waiting(); got != 0 {
			t.Errorf("%d in flight were not waited for", got)
		}
		if st := n.Stats(); st.State != uplink.Stopped || n.Delivering() {
			t.Errorf("after the end: state %q, delivering %v", st.State, n.Delivering())
		}
	})
}

// While an output is down and the window is full, a gateway has nothing to send
// but its pings, and the carrier stays.
func TestOutputDownForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, out := newQueue(), newOutput("a")
		out.broken = true
		far := startCollector(t, out)
		far.stop()
		far.opt.Limits.Unacked = 20_000
		far.start()
		defer far.stop()
		for range 20 {
			q.add(reading.Live, 500)
		}
		n := startUplink(q, nil, &path{to: far.now.Load})
		defer n.stop()
		<-time.After(time.Hour)
		if got := n.Stats().Retries; got != 0 {
			t.Errorf("%d reconnections in an hour", got)
		}
		out.set(func() { out.broken = false })
		within(t, time.Minute, "all acknowledged", func() bool { return q.waiting() == 0 })
		out.check(t, stream(reading.Live), 10_000, nil)
	})
}

// A gateway that was restarted hears that more became durable than it has sent:
// its earlier process had sent that. It goes on behind it.
func TestRestartUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, out := newQueue(), newOutput("a")
		out.delay = 4 * time.Second
		far := startCollector(t, out)
		defer far.stop()
		q.add(reading.Live, 20_000)
		earlier := knock(t, far, nil)
		earlier.welcome()
		earlier.send(0, 1, 20_000)
		<-time.After(time.Second)
		p := &path{link: carriertest.Link{Rate: 1000}, to: far.now.Load}
		n := startUplink(q, nil, p)
		defer n.stop()
		q.add(reading.Live, 10)
		within(t, time.Minute, "all acknowledged", func() bool { return q.waiting() == 0 })
		out.check(t, stream(reading.Live), 20_010, nil)
		if p.dials != 1 {
			t.Errorf("%d carriers, want 1", p.dials)
		}
		earlier.end.Close()
	})
}

// A link may be so slow that a few packets take seconds.
func TestSlowLink(t *testing.T) {
	for _, rate := range []int{2500, 1000} {
		synctest.Test(t, func(t *testing.T) {
			q, out := newQueue(), newOutput("a")
			far := startCollector(t, out)
			defer far.stop()
			for range 20 {
				q.add(reading.Live, 500)
			}
			p := &path{link: carriertest.Link{Rate: rate, Delay: 300 * time.Millisecond}, to: far.now.Load}
			n := startUplink(q, func(o *uplink.Options) { o.MaxFrame = 256 << 10 }, p)
			defer n.stop()
			within(t, 10*time.Second, "connected", n.Delivering)
			within(t, 10*time.Minute, "all acknowledged", func() bool {
				if !n.Delivering() {
					t.Fatalf("%d bytes a second: not delivering after %v", rate, n.Stats())
				}
				return q.waiting() == 0
			})
			if p.dials != 1 {
				t.Errorf("%d bytes a second: %d carriers, want 1", rate, p.dials)
			}
		})
	}
}

// Two gateways with one certificate, as after an SD card was copied, turn each
// other out without a storm, and the reason says what to do.
func TestCopiedGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, copied, out := newQueue(), newQueue(), newOutput("a")
		copied.epoch = 78
		far := startCollector(t, out)
		defer far.stop()
		p := &path{link: carriertest.Link{Delay: 20 * time.Millisecond}, to: far.now.Load}
		a := startUplink(q, nil, p)
		defer a.stop()
		b := startUplink(copied, nil, p)
		defer b.stop()
		named := false
		for range 3600 {
			q.add(reading.Live, 1)
			copied.add(reading.Live, 1)
			<-time.After(time.Second)
			named = named || strings.Contains(a.Stats().Reason+b.Stats().Reason, "certificate")
		}
		if p.dials > 600 {
			t.Errorf("%d attempts of two gateways in an hour", p.dials)
		}
		t.Logf("%d attempts", p.dials)
		if !named {
			t.Error("no reason ever named the certificate")
		}
	})
}

// Promise 3, by chance: both ends, the path and the output fail at random
// moments, readings come and are removed all the time; in the end every reading
// that was not removed is there once, in order.
func TestChaos(t *testing.T) {
	for seed := range uint64(12) {
		synctest.Test(t, func(t *testing.T) {
			t.Logf("seed %d", seed)
			rng := rand.New(rand.NewPCG(seed, 1))
			q, a, b := newQueue(), newOutput("a"), newOutput("b")
			a.delay = time.Duration(rng.IntN(20)) * time.Millisecond
			far := startCollector(t, a, b)
			p := &path{link: carriertest.Link{Rate: 20_000 + rng.IntN(1_000_000), Delay: time.Duration(rng.IntN(80)) * time.Millisecond},
				to: far.now.Load}
			n := startUplink(q, nil, p)
			removed := [reading.Lanes]map[uint64]bool{{}, {}, {}}
			for range 100 {
				<-time.After(time.Duration(rng.IntN(400)) * time.Millisecond)
				switch rng.IntN(12) {
				case 0:
					p.cut()
				case 1:
					n.stop()
					n = startUplink(q, nil, p)
				case 2:
					far.stop()
					far.start()
				case 3:
					a.set(func() { a.fails = rng.IntN(3) })
					b.set(func() { b.lies = rng.IntN(3) })
				case 4:
					lane := reading.Lane(rng.IntN(reading.Lanes))
					q.mu.Lock()
					seq := q.acked[lane] + 1 + uint64(rng.IntN(300))
					q.mu.Unlock()
					s := q.remove(lane, seq)
					for i := range uint64(s.Count) {
						removed[lane][s.First+i] = true
					}
				default:
					q.add(reading.Lane(rng.IntN(reading.Lanes)), 1+rng.IntN(1+rng.IntN(1000)))
				}
			}
			within(t, 10*time.Minute, "all acknowledged", func() bool { return q.waiting() == 0 })
			n.stop()
			far.stop()
			for lane := range reading.Lane(reading.Lanes) {
				for _, o := range []*output{a, b} {
					o.check(t, stream(lane), q.next[lane]-1, func(seq uint64) bool { return removed[lane][seq] })
				}
			}
		})
	}
}
