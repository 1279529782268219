package pathsel

import (
	"testing"
	"time"
)

// slots runs whole slots with the given losses of 1000 packets, in per mille.
func slots(m *Method, now *time.Time, losses ...uint64) (out []Outcome) {
	o := m.Observe(*now, Counts{})
	for _, lost := range losses {
		*now = now.Add(o.Slot)
		o = m.Observe(*now, Counts{Sent: 1000, Lost: lost})
		out = append(out, o)
	}
	return out
}

// [MS] Algorithm 3, rule by rule, with the paper's settings.
func TestTCPSCTPMethod(t *testing.T) {
	type step struct {
		lost uint64 // per mille
		act  bool
		slot time.Duration // of the next slot
	}
	for _, tt := range []struct {
		name  string
		steps []step
	}{
		{"lines 2 and 3: the first slot is only recorded", []step{{100, false, 16}}},
		{"line 6: above 5 % it acts, the slot stays", []step{{0, false, 16}, {51, true, 16}, {60, true, 16}}},
		{"line 6: 5 % is not above", []step{{0, false, 16}, {50, false, 8}}},
		{"lines 13 to 16: a rise halves the slot", []step{{10, false, 16}, {20, false, 8}, {30, false, 4}}},
		{"line 23: the third rise acts", []step{{10, false, 16}, {20, false, 8}, {30, false, 4}, {40, true, 2}, {45, false, 1}}},
		{"lines 17 to 20: a fall doubles the slot and starts the count again", []step{{10, false, 16}, {20, false, 8}, {30, false, 4}, {20, false, 8}, {30, false, 4}, {40, false, 2}}},
		{"line 9: acting starts the count again", []step{{10, false, 16}, {20, false, 8}, {30, false, 4}, {60, true, 4}, {20, false, 8}, {30, false, 4}, {40, false, 2}, {45, true, 1}}},
		{"line 13 says >=; we say >: an equal rate is not worse", []step{{10, false, 16}, {10, false, 32}, {10, false, 64}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, now := NewMethod(Paper().Slots), t0
			var losses []uint64
			for _, s := range tt.steps {
				losses = append(losses, s.lost)
			}
			for i, o := range slots(m, &now, losses...) {
				want := tt.steps[i]
				if !o.Ended || o.Act != want.act || o.Slot != want.slot*time.Second || o.Rate != float64(want.lost)/10 || o.Reason == "" {
					t.Errorf("slot %d: got %+v, want %+v", i, o, want)
				}
			}
		})
	}
}

// A perfect link: no action in 10,000 slots, and the slot at its maximum.
func TestTCPSCTPPerfectLink(t *testing.T) {
	for _, p := range []Profile{Paper(), Default()} {
		m, now := NewMethod(p.Slots), t0
		for i, o := range slots(m, &now, make([]uint64, 10_000)...) {
			if o.Act || i > 10 && o.Slot != p.Slots.Max {
				t.Fatalf("%s: slot %d: %+v, want no action and %v", p.Name, i, o, p.Slots.Max)
			}
		}
	}
}

// The slot's bounds hold, whatever the losses.
func TestTCPSCTPSlotBounds(t *testing.T) {
	for _, p := range []Profile{Paper(), Default()} {
		m, now := NewMethod(p.Slots), t0
		var losses []uint64
		for i := range uint64(45) {
			losses = append(losses, i+1)
		}
		shortest := p.Slots.Max
		for _, o := range slots(m, &now, losses...) {
			shortest = min(shortest, o.Slot)
		}
		if shortest != p.Slots.Min {
			t.Errorf("%s: shortest slot %v, want %v", p.Name, shortest, p.Slots.Min)
		}
	}
}

// Fewer than 20 packets say nothing: neither better nor worse.
func TestTCPSCTPTooFewPackets(t *testing.T) {
	m, now := NewMethod(Paper().Slots), t0
	slots(m, &now, 10, 20)
	now = now.Add(8 * time.Second)
	o := m.Observe(now, Counts{Sent: 19, Lost: 19})
	if !o.Ended || o.Act || o.Rate != 2 || o.Slot != 8*time.Second {
		t.Errorf("19 packets, all lost: got %+v, want 2 %% carried on and 8 s", o)
	}
	now = now.Add(8 * time.Second)
	if o = m.Observe(now, Counts{Sent: 20, Lost: 20}); !o.Act {
		t.Errorf("20 packets, all lost: got %+v, want action", o)
	}
}

// What was lost on the path before does not count against the next.
func TestTCPSCTPRestart(t *testing.T) {
	m, now := NewMethod(Paper().Slots), t0
	slots(m, &now, 10)
	now = now.Add(8 * time.Second)
	m.Observe(now, Counts{Sent: 1000, Lost: 500})
	m.Restart(now)
	now = now.Add(8 * time.Second)
	if o := m.Observe(now, Counts{Sent: 1000}); o.Ended {
		t.Errorf("the slot did not begin anew: %+v", o)
	}
	now = now.Add(8 * time.Second)
	if o := m.Observe(now, Counts{Sent: 1000}); !o.Ended || o.Act || o.Rate != 0 {
		t.Errorf("got %+v, want a slot without loss", o)
	}
}

// Deviation: a link that was perfect for long is not looked at once a minute
// only; the appliance sees 10 % of loss within two seconds.
func TestTCPSCTPAlarm(t *testing.T) {
	m, now := NewMethod(Default().Slots), t0
	slots(m, &now, make([]uint64, 20)...)
	began := now
	for acted := false; !acted; {
		now = now.Add(50 * time.Millisecond)
		acted = m.Observe(now, Counts{Sent: 30, Lost: 3}).Act
		if now.Sub(began) > 2*time.Second {
			t.Fatal("10 % of loss for two seconds, and no action")
		}
	}
	// A burst that chance explains does nothing.
	m, now = NewMethod(Default().Slots), t0
	slots(m, &now, make([]uint64, 20)...)
	for i := range 1000 {
		now = now.Add(50 * time.Millisecond)
		lost := uint64(0)
		if i%20 == 0 {
			lost = 2
		}
		if o := m.Observe(now, Counts{Sent: 5, Lost: lost}); o.Act {
			t.Fatalf("2 %% of loss: %+v", o)
		}
	}
}
