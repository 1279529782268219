package collector_test

import (
	"errors"
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

// carrier is what Stats says of a slot's carrier; the zero one if it has none.
func (n *near) carrier(slot string) uplink.CarrierStats {
	for _, c := range n.Stats().Carriers {
		if c.Slot == slot {
			return c
		}
	}
	return uplink.CarrierStats{}
}

func (n *near) joined(t *testing.T, slots ...string) {
	t.Helper()
	within(t, 10*time.Second, "all joined", func() bool {
		for _, s := range slots {
			if n.carrier(s).Remote == "" {
				return false
			}
		}
		return true
	})
}

// load adds a live reading every so often, until stop, which returns how many.
func load(q *queue, every time.Duration) (stop func() uint64) {
	done, ended := make(chan struct{}), make(chan uint64)
	go func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for n := uint64(0); ; n++ {
			select {
			case <-tick.C:
				q.add(reading.Live, 1)
			case <-done:
				ended <- n
				return
			}
		}
	}()
	return func() uint64 { close(done); return <-ended }
}

// paths returns a queue, an output, a collector, and a number of paths to it.
func paths(t *testing.T, count int, link carriertest.Link) (*queue, *output, *far, []*path) {
	q, out := newQueue(), newOutput("a")
	far := startCollector(t, out)
	ps := make([]*path, count)
	for i := range ps {
		ps[i] = &path{link: link, to: far.now.Load}
	}
	return q, out, far, ps
}

func soon(o *uplink.Options) { o.Flush = 0 }

// Several active carriers share what there is, and are faster than one.
func TestCarriersShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, out, far, ps := paths(t, 2, carriertest.Link{Rate: 100_000, Delay: 20 * time.Millisecond})
		defer far.stop()
		for range 200 {
			q.add(reading.Backfill, 1000)
		}
		n := startUplink(q, func(o *uplink.Options) { o.Slots = []uplink.Slot{slot("a", ps[0]), slot("b", ps[1])} })
		defer n.stop()
		n.joined(t, "a", "b")
		start := time.Now()
		within(t, time.Minute, "all acknowledged", func() bool { return q.waiting() == 0 })
		took := time.Since(start)
		out.check(t, stream(reading.Backfill), 200_000, nil)
		st := n.Stats()
		t.Logf("%d bytes in %v: %.0f a second", st.BytesOut, took, float64(st.BytesOut)/took.Seconds())
		if rate := float64(st.BytesOut) / took.Seconds(); rate < 180_000 {
			t.Errorf("two carriers of 100000 bytes a second made %.0f", rate)
		}
		var bytes uint64
		for _, c := range st.Carriers {
			bytes += c.Info.BytesOut
			if c.State != uplink.CarrierActive || c.Kind != "memory" || c.Path != c.Slot || c.RTT == 0 || c.Rate == 0 ||
				c.Waiting != 0 || c.InFlight != 0 || time.Since(c.Heard) > time.Second || c.Info.BytesOut < st.BytesOut/3 || c.Delivered == 0 {
				t.Errorf("carrier: %+v", c)
			}
		}
		if bytes != st.BytesOut {
			t.Errorf("the carriers sent %d bytes, all together %d", bytes, st.BytesOut)
		}
		if d := far.c.Stats().Sessions[0].Lanes[reading.Backfill].Duplicates; d != 0 {
			t.Errorf("%d readings were sent twice", d)
		}
	})
}

// F16, promise 8: a carrier that stops moving without a word is given up, by
// whoever steers or because the others overtake it. Delivery pauses briefly,
// nothing is lost and nothing comes twice.
func TestSilentDeath(t *testing.T) {
	for _, c := range []struct {
		name    string
		slots   func(a, b *path) []uplink.Slot
		abandon bool
		kill    func(*path)
	}{
		{"active beside active, abandoned", func(a, b *path) []uplink.Slot { return []uplink.Slot{slot("a", a), slot("b", b)} }, true, (*path).cut},
		{"active beside active", func(a, b *path) []uplink.Slot { return []uplink.Slot{slot("a", a), slot("b", b)} }, false, (*path).cut},
		{"active beside standby, abandoned", func(a, b *path) []uplink.Slot { return []uplink.Slot{slot("a", a), standby(slot("b", b))} }, true, (*path).cut},
		{"stalled, not dead", func(a, b *path) []uplink.Slot { return []uplink.Slot{slot("a", a), slot("b", b)} }, false,
			func(p *path) { p.each((*carriertest.End).Stall) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, out, far, ps := paths(t, 2, carriertest.Link{Rate: 200_000, Delay: 30 * time.Millisecond})
				defer far.stop()
				n := startUplink(q, func(o *uplink.Options) { soon(o); o.Slots = c.slots(ps[0], ps[1]) })
				defer n.stop()
				n.joined(t, "a", "b")
				stop := load(q, 5*time.Millisecond)
				<-time.After(5 * time.Second)
				dead := time.Now()
				c.kill(ps[0])
				if c.abandon {
					within(t, 5*time.Second, "it is seen to wait", func() bool { return n.carrier("a").Waiting > 300*time.Millisecond })
					n.Abandon("a", errors.New("abandoned by the test"))
				}
				<-time.After(5 * time.Second)
				if c.name == "stalled, not dead" {
					ps[0].each((*carriertest.End).Resume)
					<-time.After(5 * time.Second)
					if got := n.Stats().Retries; got != 0 {
						t.Errorf("%d reconnections, want the carrier to go on", got)
					}
				}
				total := stop()
				within(t, time.Minute, "all acknowledged", func() bool { return q.waiting() == 0 })
				out.check(t, stream(reading.Live), total, nil)
				gap := out.gap(stream(reading.Live), dead)
				t.Logf("longest gap %v, %d readings came twice", gap, far.c.Stats().Sessions[0].Lanes[reading.Live].Duplicates)
				if gap > 600*time.Millisecond {
					t.Errorf("longest gap %v, want at most 0.6 s", gap)
				}
			})
		})
	}
}

// Standby carriers cost a ping now and then, carry nothing while an active one
// has joined, and everything as soon as none has.
func TestStandby(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, out, far, ps := paths(t, 2, carriertest.Link{Delay: 30 * time.Millisecond})
		defer far.stop()
		var up atomic.Bool
		up.Store(true)
		ps[0].to = func() *listener {
			if up.Load() {
				return far.now.Load()
			}
			return nil
		}
		n := startUplink(q, func(o *uplink.Options) { soon(o); o.Slots = []uplink.Slot{slot("a", ps[0]), standby(slot("b", ps[1]))} })
		defer n.stop()
		n.joined(t, "a", "b")
		stop := load(q, 20*time.Millisecond)
		before := n.carrier("b")
		<-time.After(30 * time.Minute)
		b := n.carrier("b")
		if b.State != uplink.CarrierStandby || b.Delivered != 0 || b.Info.BytesOut-before.Info.BytesOut > 21*30 {
			t.Errorf("standby beside an active one: %+v", b)
		}
		up.Store(false)
		lost := time.Now()
		ps[0].each(func(e *carriertest.End) { e.Close() })
		<-time.After(5 * time.Second)
		if gap := out.gap(stream(reading.Live), lost); gap > 200*time.Millisecond {
			t.Errorf("longest gap %v, want at most 0.2 s", gap)
		}
		if b := n.carrier("b"); b.Delivered == 0 || !strings.Contains(b.Reason, "carries") || !n.Delivering() {
			t.Errorf("standby alone: %+v", b)
		}
		up.Store(true)
		within(t, time.Minute, "active again", func() bool { return n.carrier("a").State == uplink.CarrierActive })
		<-time.After(time.Second)
		was := n.carrier("b").Delivered
		<-time.After(time.Minute)
		if now := n.carrier("b").Delivered; now != was {
			t.Errorf("standby carried %d bytes after the active one was back", now-was)
		}
		total := stop()
		within(t, time.Minute, "all acknowledged", func() bool { return q.waiting() == 0 })
		out.check(t, stream(reading.Live), total, nil)
	})
}

// What a carrier has in flight when it goes to standby is acknowledged over it
// while it moves, and goes again on the active one when it does not.
func TestToStandbyWithFlight(t *testing.T) {
	for _, stalls := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			q, out, far, ps := paths(t, 2, carriertest.Link{Rate: 50_000, Delay: 100 * time.Millisecond})
			defer far.stop()
			n := startUplink(q, func(o *uplink.Options) { o.Slots = []uplink.Slot{slot("a", ps[0]), standby(slot("b", ps[1]))} })
			defer n.stop()
			n.joined(t, "a", "b")
			for range 10 {
				q.add(reading.Live, 1000)
			}
			within(t, 5*time.Second, "in flight", func() bool { return n.carrier("a").InFlight > 10_000 })
			if stalls {
				ps[0].each((*carriertest.End).Stall)
			}
			n.Plan([]uplink.Slot{standby(slot("a", ps[0])), slot("b", ps[1])})
			within(t, 5*time.Second, "all acknowledged", func() bool { return q.waiting() == 0 })
			out.check(t, stream(reading.Live), 10_000, nil)
			if d := far.c.Stats().Sessions[0].Lanes[reading.Live].Duplicates; !stalls && d != 0 {
				t.Errorf("%d readings came twice over a carrier that moved", d)
			}
		})
	}
}

// A slot that is not planned any more leaves when what it has is acknowledged,
// with a word to the collector; planned again before, it goes on.
func TestUnplanned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, out, far, ps := paths(t, 2, carriertest.Link{Rate: 50_000, Delay: 100 * time.Millisecond})
		defer far.stop()
		a, b := slot("a", ps[0]), slot("b", ps[1])
		n := startUplink(q, func(o *uplink.Options) { o.Slots = []uplink.Slot{a, b} })
		defer n.stop()
		n.joined(t, "a", "b")
		for range 20 {
			q.add(reading.Live, 1000)
		}
		within(t, 5*time.Second, "in flight", func() bool { return n.carrier("a").InFlight > 0 })
		n.Plan([]uplink.Slot{b})
		within(t, time.Second, "leaving", func() bool { return n.carrier("a").State == uplink.CarrierLeaving })
		n.Plan([]uplink.Slot{b, a})
		within(t, time.Second, "kept", func() bool { return n.carrier("a").State == uplink.CarrierActive })
		if got := n.Stats().Carriers[0].Slot; got != "b" {
			t.Errorf("first carrier: got %q, want the plan's first", got)
		}
		n.Plan([]uplink.Slot{b})
		within(t, 3*time.Second, "gone", func() bool { return len(n.Stats().Carriers) == 1 })
		within(t, time.Second, "gone at the collector", func() bool { return len(far.c.Stats().Sessions[0].Carriers) == 1 })
		within(t, time.Minute, "all acknowledged", func() bool { return q.waiting() == 0 })
		out.check(t, stream(reading.Live), 20_000, nil)
		if ps[0].dials != 1 || far.c.Stats().Sessions[0].Lanes[reading.Live].Duplicates != 0 {
			t.Errorf("%d carriers, %d duplicates, want 1 and none", ps[0].dials, far.c.Stats().Sessions[0].Lanes[reading.Live].Duplicates)
		}
		n.Plan(nil)
		within(t, 3*time.Second, "none planned", func() bool { st := n.Stats(); return len(st.Carriers) == 0 && st.State == uplink.Connecting })
		if n.Delivering() || !strings.Contains(n.Stats().Reason, "planned") {
			t.Errorf("without a plan: %s", n.Stats().Reason)
		}
	})
}

// Two slots that reach different collectors: the first decides, the other says
// why and tries its next dialer.
func TestSlotsElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _, far, ps := paths(t, 2, carriertest.Link{Delay: 10 * time.Millisecond})
		defer far.stop()
		other := startCollector(t, newOutput("b"))
		defer other.stop()
		wrong := &path{link: carriertest.Link{Delay: 50 * time.Millisecond}, to: other.now.Load}
		n := startUplink(q, func(o *uplink.Options) { o.Slots = []uplink.Slot{slot("a", ps[0]), slot("b", wrong, ps[1])} })
		defer n.stop()
		n.joined(t, "a")
		within(t, time.Second, "refused", func() bool { return strings.Contains(n.carrier("b").Reason, "another collector") })
		n.joined(t, "b")
		if got := len(far.c.Stats().Sessions[0].Carriers); got != 2 {
			t.Errorf("%d carriers at the first collector, want both", got)
		}
	})
}

// Plans change at random under load, and nothing is lost, doubled or out of order.
func TestPlansAtRandom(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 1))
		q, out, far, ps := paths(t, 4, carriertest.Link{Rate: 100_000, Delay: 40 * time.Millisecond})
		defer far.stop()
		names := []string{"a", "b", "c", "d"}
		n := startUplink(q, nil)
		defer n.stop()
		stop := load(q, 3*time.Millisecond)
		for range 100 {
			var plan []uplink.Slot
			for _, i := range rng.Perm(len(ps))[:rng.IntN(len(ps)+1)] {
				s := slot(names[i], ps[i])
				s.Standby = rng.IntN(2) == 0
				plan = append(plan, s)
			}
			n.Plan(plan)
			if rng.IntN(4) == 0 {
				n.Abandon(names[rng.IntN(len(names))], errors.New("abandoned by the test"))
			}
			<-time.After(time.Duration(rng.IntN(1500)) * time.Millisecond)
		}
		n.Plan([]uplink.Slot{slot("a", ps[0])})
		total := stop()
		within(t, time.Minute, "all acknowledged", func() bool { return q.waiting() == 0 })
		out.check(t, stream(reading.Live), total, nil)
	})
}

// Promise 3 with several carriers, by chance: they delay, stall, die and come
// back, the collector and the gateway restart, plans change; in the end every
// reading is there once, in order.
func TestCarriersChaos(t *testing.T) {
	for range 8 {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			q, out, far, ps := paths(t, 3, carriertest.Link{})
			out.delay = time.Duration(rng.IntN(300)) * time.Millisecond
			var plan []uplink.Slot
			for i, p := range ps {
				p.link = carriertest.Link{Rate: 5_000 + rng.IntN(500_000), Delay: time.Duration(rng.IntN(300)) * time.Millisecond}
				s := slot(string(rune('a'+i)), p)
				s.Standby = rng.IntN(3) == 0
				plan = append(plan, s)
			}
			slots := func(o *uplink.Options) { o.Slots = plan }
			n := startUplink(q, slots)
			for range 150 {
				<-time.After(time.Duration(rng.IntN(500)) * time.Millisecond)
				i := rng.IntN(len(ps))
				switch rng.IntN(16) {
				case 0:
					ps[i].cut()
				case 1:
					ps[i].each(func(e *carriertest.End) { e.Close() })
				case 2, 3:
					ps[i].each((*carriertest.End).Stall)
				case 4, 5:
					ps[i].each((*carriertest.End).Resume)
				case 6:
					n.Abandon(plan[i].Name, errors.New("abandoned by the test"))
				case 7:
					plan[i].Standby = !plan[i].Standby
					n.Plan(append([]uplink.Slot(nil), plan[:rng.IntN(len(plan)+1)]...))
				case 8:
					n.Plan(append([]uplink.Slot(nil), plan...))
				case 9:
					if rng.IntN(4) == 0 {
						far.stop()
						far.start()
					}
				case 10:
					if rng.IntN(4) == 0 {
						n.stop()
						n = startUplink(q, slots)
					}
				default:
					q.add(reading.Lane(rng.IntN(reading.Lanes)), 1+rng.IntN(1+rng.IntN(1000)))
				}
			}
			for _, p := range ps {
				p.each((*carriertest.End).Resume)
			}
			n.Plan(plan)
			within(t, 10*time.Minute, "all acknowledged", func() bool { return q.waiting() == 0 })
			for lane := range reading.Lane(reading.Lanes) {
				out.check(t, stream(lane), q.next[lane]-1, nil)
			}
			n.stop()
			far.stop()
		})
	}
}
