package pathsel

import (
	"math"
	"testing"
	"time"
)

// [MS] Algorithm 1: both arrays start at 0, Last follows, Max keeps the largest.
func TestMSSCTPLossTable(t *testing.T) {
	l := NewLosses(10 * time.Minute)
	if got := l.Get(t0, "a"); got != (Loss{}) {
		t.Errorf("before any record: got %+v, want zeros", got)
	}
	l.Record(t0, "a", 12)
	l.Record(t0.Add(time.Second), "a", 4)
	if got, want := l.Get(t0.Add(time.Second), "a"), (Loss{Last: 4, Max: 12}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := l.Get(t0, "b"); got != (Loss{}) {
		t.Errorf("another path: got %+v, want zeros", got)
	}
	if got, want := (Loss{Last: 4, Max: 12}).Score(), 6.0; got != want {
		t.Errorf("score %v, want %v", got, want)
	}
	l.Record(t0.Add(2*time.Second), "a", math.NaN())
	if got := l.Get(t0.Add(2*time.Second), "a"); got.Last != 4 {
		t.Errorf("after a rate that is no number: got %+v", got)
	}
}

// Deviation: Max is over a window. With 0 it is the paper's, for ever.
func TestMSSCTPMaxWindow(t *testing.T) {
	for _, tt := range []struct {
		window, later time.Duration
		want          float64
	}{
		{10 * time.Minute, 9 * time.Minute, 50},
		{10 * time.Minute, 10*time.Minute + 10*time.Second, 1},
		{10 * time.Minute, 24 * time.Hour, 1},
		{0, 24 * 365 * time.Hour, 50},
	} {
		l := NewLosses(tt.window)
		l.Record(t0, "a", 50)
		l.Record(t0.Add(tt.later), "a", 1)
		if got := l.Get(t0.Add(tt.later), "a").Max; got != tt.want {
			t.Errorf("window %v, %v later: max %v, want %v", tt.window, tt.later, got, tt.want)
		}
	}
}

// [MS] Algorithm 1: an unreachable path has 101 for both. In the paper Max keeps
// it; with a window it goes with the first rate that is measured again.
func TestMSSCTPUnreachable(t *testing.T) {
	for _, tt := range []struct {
		window time.Duration
		after  float64
	}{{10 * time.Minute, 3}, {0, Unreachable}} {
		l := NewLosses(tt.window)
		l.Record(t0, "a", 3)
		l.Unreachable("a")
		if got, want := l.Get(t0, "a"), (Loss{Unreachable, Unreachable}); got != want || got.Score() != Unreachable {
			t.Errorf("window %v: got %+v, want %+v", tt.window, got, want)
		}
		l.Record(t0.Add(time.Second), "a", 0)
		if got := l.Get(t0.Add(time.Second), "a"); got.Last != 0 || got.Max != tt.after {
			t.Errorf("window %v, measured again: got %+v, want max %v", tt.window, got, tt.after)
		}
	}
}

// A time before the last one does not lose or revive anything.
func TestLossesTimeGoesBack(t *testing.T) {
	l := NewLosses(10 * time.Minute)
	l.Record(t0, "a", 50)
	l.Record(t0.Add(-time.Hour), "a", 1)
	if got, want := l.Get(t0.Add(-time.Hour), "a"), (Loss{Last: 1, Max: 50}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// [MS] 4.3: loss is what was sent again, of what was sent.
func TestRetransmissionRatio(t *testing.T) {
	for _, tt := range []struct {
		counts Counts
		want   float64
	}{
		{Counts{300, 33}, 11}, {Counts{100, 0}, 0}, {Counts{0, 0}, 0}, {Counts{10, 30}, 100}, {Counts{0, 5}, 100},
	} {
		if got := tt.counts.Percent(); got != tt.want {
			t.Errorf("%+v: got %v, want %v", tt.counts, got, tt.want)
		}
	}
}

func TestRatioWaitsForEnough(t *testing.T) {
	r := NewRatio(20, time.Second)
	steps := []struct {
		after time.Duration
		c     Counts
		want  float64
		ok    bool
	}{
		{0, Counts{15, 3}, 0, false},
		{2 * time.Second, Counts{4, 0}, 0, false},
		{3 * time.Second, Counts{1, 1}, 20, true},
		{4 * time.Second, Counts{200, 0}, 0, false},
		{4500 * time.Millisecond, Counts{200, 0}, 0, false},
		{5 * time.Second, Counts{}, 0, true},
	}
	for _, s := range steps {
		if got, ok := r.Add(t0.Add(s.after), s.c); got != s.want || ok != s.ok {
			t.Errorf("at %v: got %v, %v, want %v, %v", s.after, got, ok, s.want, s.ok)
		}
	}
}

func TestRecentProbes(t *testing.T) {
	r := NewRecent(20)
	if got := r.Add(Counts{3, 1}); got != 0 {
		t.Errorf("one of three: got %v, want 0: one is forgiven", got)
	}
	if got := r.Add(Counts{3, 1}); got != 5 {
		t.Errorf("two of six: got %v, want 5: missing probes count as answered", got)
	}
	for range 30 {
		r.Add(Counts{1, 0})
	}
	if got := r.Add(Counts{}); got != 0 {
		t.Errorf("after 30 good ones: got %v, want 0", got)
	}
	for range 10 {
		r.Add(Counts{1, 1})
	}
	if got := r.Add(Counts{}); got != 45 {
		t.Errorf("after 10 lost of 20: got %v, want 45", got)
	}
	for range 1000 {
		r.Add(Counts{1, 0})
	}
	if len(r.parts) > 21 {
		t.Errorf("%d parts kept, want about 20", len(r.parts))
	}
}
