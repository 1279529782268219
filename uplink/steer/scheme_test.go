package steer

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/pathsel"
)

// The only path that can be used loses by chance: TCP, and more carriers of it, as the table says; and back once the
// loss is gone.
func TestSchemeFollowsLoss(t *testing.T) {
	for _, tt := range []struct {
		loss  float64
		least int // carriers
	}{{0.1, 1}, {0.2, 4}, {0.33, 4}} {
		t.Run(fmt.Sprint(tt.loss), func(t *testing.T) {
			in(t, pathsel.Default(), func(w *world, wlan, wwan *radio) {
				w.set(func() { wwan.dead = true })
				w.loaded()
				w.set(func() { wlan.loss = tt.loss })
				wait(90 * time.Second)
				if s := w.steer.Snapshot(); s.Protocol != pathsel.TCP || s.Carriers < tt.least {
					t.Errorf("got %q, want TCP and %d carriers at least; switches: %s", w.way(), tt.least, w.switches())
				}
				if n := w.count(); n > 4 {
					t.Errorf("%d switches in 90 s of one loss rate: %s", n, w.switches())
				}
				if gap := w.gap(); gap > 200*time.Millisecond {
					t.Errorf("gap %v", gap)
				}
				t.Logf("at %.0f %%: %s%s", 100*tt.loss, w.way(), w.switches())
				w.set(func() { wlan.loss = 0 })
				w.await("sctp wlan0", 5*time.Minute)
			})
		})
	}
}

// A path that is alone is TCP's, with as many carriers as its loss asks for.
// SCTP is dialled once there is another, and not let go as soon as one is away.
func TestLonePath(t *testing.T) {
	in(t, pathsel.Default(), func(w *world, wlan, wwan *radio) {
		w.set(func() { wwan.up = false })
		w.await("tcp wlan0", 3*time.Second)
		w.set(func() { w.load = true })
		wait(time.Minute)
		w.want("tcp wlan0")
		if s := w.steer.Snapshot(); !strings.Contains(s.Reason, "one path only") {
			t.Errorf("the reason is %q", s.Reason)
		}
		w.set(func() { wwan.up = true })
		w.await("sctp wlan0", 3*time.Second)
		w.set(func() { wwan.up = false })
		wait(time.Minute)
		w.want("sctp wlan0")
		w.await("tcp wlan0", loneAfter)
		if s := w.steer.Snapshot(); !strings.Contains(s.Switches[len(s.Switches)-1].Reason, "one path only") {
			t.Errorf("switches without their reason: %s", w.switches())
		}
		w.set(func() { wlan.loss = 0.2 })
		w.await("tcp wlan0, 4 carriers", time.Second)
		w.set(func() { wlan.loss = 0 })
		w.await("tcp wlan0", time.Minute)
		if w.gap() > 200*time.Millisecond {
			t.Errorf("gap %v", w.gap())
		}
	})
}

// A long path is TCP's; the association stands by and carries once the path is a
// shorter one.
func TestLongPath(t *testing.T) {
	in(t, pathsel.Default(), func(w *world, wlan, wwan *radio) {
		w.set(func() { wlan.rtt, wwan.rtt = 500*time.Millisecond, 500*time.Millisecond })
		wait(5 * time.Second)
		w.want("tcp wlan0")
		if s := w.steer.Snapshot(); !strings.Contains(s.Reason, "wlan0 is long") || s.Carriers != 1 {
			t.Errorf("%d carriers, the reason is %q", s.Carriers, s.Reason)
		}
		w.set(func() { w.load, wlan.rtt = true, 40*time.Millisecond })
		w.await("sctp wlan0", 20*time.Second)
	})
}

// Beside a path that loses much, a good one is TCP's: SCTP would retransmit over the
// other. It carries again once that one is good.
func TestLeakyPath(t *testing.T) {
	for _, loss := range []float64{0.3, 0.5, 0.7} {
		t.Run(fmt.Sprint(loss), func(t *testing.T) {
			in(t, pathsel.Default(), func(w *world, wlan, wwan *radio) {
				w.loaded()
				w.set(func() { wlan.loss = loss })
				w.await("tcp wwan1", 5*time.Second)
				if s := w.steer.Snapshot(); !strings.Contains(s.Reason, "retransmit over wlan0") {
					t.Errorf("the reason is %q", s.Reason)
				}
				wait(5 * time.Minute)
				if n := w.count(); n > 2 {
					t.Errorf("%d switches in five minutes: %s", n, w.switches())
				}
				if gap := w.gap(); gap > time.Second {
					t.Errorf("gap %v", gap)
				}
				w.set(func() { wlan.loss = 0 })
				w.await("sctp wlan0", 30*time.Minute)
			})
		})
	}
}

// The link of a path that leaks comes and goes: nothing is switched for it. Once it
// is dead for good, SCTP has nothing to lose there.
func TestLeakyPathFlaps(t *testing.T) {
	in(t, pathsel.Default(), func(w *world, wlan, wwan *radio) {
		w.loaded()
		w.set(func() { wlan.loss = 0.3 })
		w.await("tcp wwan1", 5*time.Second)
		before := w.count()
		for range 15 {
			w.set(func() { wlan.up = false })
			wait(12 * time.Second)
			w.set(func() { wlan.up = true })
			wait(8 * time.Second)
		}
		if n := w.count() - before; n > 0 {
			t.Errorf("%d switches: %s", n, w.switches())
		}
		w.set(func() { wlan.dead = true })
		w.await("sctp wwan1", 6*time.Minute)
	})
}

// A path that was never long is SCTP's again once the other does not leak.
func TestLeakyPathLeavesNoLength(t *testing.T) {
	in(t, pathsel.Default(), func(w *world, wlan, wwan *radio) {
		w.set(func() { wlan.rtt, wwan.rtt = 220*time.Millisecond, 220*time.Millisecond })
		w.await("sctp wlan0", 10*time.Second)
		w.set(func() { w.load, wlan.loss = true, 0.4 })
		w.await("tcp wwan1", 10*time.Second)
		w.set(func() { wlan.loss = 0 })
		w.await("sctp wlan0", 30*time.Minute)
	})
}

// [MS] Algorithm 2 and 3 in the paper's profile, with one path: at more than 5 %
// the protocol changes at the end of each slot of 16 s, whatever that helps.
func TestPaperToggles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wlan := wifi()
		wlan.loss = 0.1
		w := start(t, pathsel.Paper(), wlan)
		w.await("sctp wlan0", 3*time.Second)
		w.set(func() { w.load = true })
		wait(2 * time.Minute)
		// The first slot is only recorded; that TCP was there first does not count.
		if got, want := w.count(), 2*60/16-1; got != want {
			t.Errorf("%d switches, want %d: %s", got, want, w.switches())
		}
	})
}

// Loss with a queue is congestion: one carrier, whatever the loss.
func TestCongestionKeepsOneCarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wlan := wifi()
		w := start(t, pathsel.Default(), wlan)
		w.await("tcp wlan0", 3*time.Second)
		w.set(func() { w.load = true })
		wait(5 * time.Second)
		w.set(func() { wlan.loss, wlan.queue = 0.1, 75*time.Millisecond })
		for range 600 {
			wait(100 * time.Millisecond)
			if n := w.steer.Snapshot().Carriers; n != 1 {
				t.Fatalf("%d carriers: %s", n, w.switches())
			}
		}
		w.want("tcp wlan0")
	})
}

// What the queue in front of a path loses, filled by our own load, is no reason to
// leave the path.
func TestOverflowIsNotThePathsFault(t *testing.T) {
	in(t, pathsel.Default(), func(w *world, wlan, wwan *radio) {
		w.loaded()
		w.set(func() { wlan.loss, wlan.queue = 0.1, 75*time.Millisecond })
		wait(20 * time.Second)
		w.want("sctp wlan0")
	})
}

// A queue that was there while SCTP carried, and is gone, is not what TCP loses by:
// what the association, which stands by, last knew of the round trip is old.
func TestStandbyTellsNothingOfTheQueue(t *testing.T) {
	in(t, pathsel.Default(), func(w *world, wlan, wwan *radio) {
		w.set(func() { wwan.dead = true })
		w.loaded()
		w.set(func() { wlan.queue = 75 * time.Millisecond })
		wait(10 * time.Second)
		w.set(func() { wlan.loss, wlan.queue = 0.2, 0 })
		wait(90 * time.Second)
		w.want("tcp wlan0, 4 carriers")
	})
}
