package pathsel

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// Section 4: a switch needs a score better by 2 points and by 20 %.
func TestHysteresisMargin(t *testing.T) {
	for _, tt := range []struct {
		current, other float64
		want           bool
	}{
		{3, 1, true}, {2.9, 1, false}, {2, 0, true}, {1.9, 0, false}, // points
		{50, 40, true}, {50, 41, false}, {20, 16, true}, {20, 17, false}, // share
		{5, 5, false}, {5, 9, false},
	} {
		h := NewHysteresis(Default().Hysteresis, fixed(0))
		h.Decide(t0, []Path{path("a", 0, 0)})
		d := h.Decide(t0.Add(time.Minute), []Path{path("a", tt.current, tt.current), path("b", tt.other, tt.other)})
		if got := d.Switched(); got != tt.want {
			t.Errorf("%v against %v: switched %v, want %v: %s", tt.current, tt.other, got, tt.want, d.Reason)
		}
		if d.Switched() && (d.Score != tt.other || d.FromScore != tt.current || d.From != "a") {
			t.Errorf("decision %+v lacks the scores", d)
		}
	}
}

// Section 4: for 10 s after a switch only an unreachable path is left.
func TestHysteresisHoldDown(t *testing.T) {
	h := NewHysteresis(Default().Hysteresis, fixed(0))
	h.Decide(t0, []Path{path("a", 0, 0)})
	if d := h.Decide(t0.Add(time.Second), []Path{path("a", 20, 20), path("b", 0, 0)}); d.Path != "b" {
		t.Fatalf("got %+v, want b", d)
	}
	back := []Path{path("a", 0, 20), path("b", 40, 40)}
	if d := h.Decide(t0.Add(10*time.Second), back); d.Switched() || !strings.Contains(d.Reason, "9.0 s ago") {
		t.Errorf("9 s after a switch: %+v", d)
	}
	if d := h.Decide(t0.Add(12*time.Second), back); d.Path != "a" {
		t.Errorf("11 s after a switch: %+v, want a", d)
	}
	if d := h.Decide(t0.Add(13*time.Second), []Path{down("a"), path("b", 40, 40)}); d.Path != "b" {
		t.Errorf("1 s after a switch to a path that died: %+v, want b", d)
	}
}

// Section 1 and 4: a path on probation wins against no path that can be
// reached, but is better than none.
func TestHysteresisProbation(t *testing.T) {
	h := NewHysteresis(Default().Hysteresis, fixed(0))
	h.Decide(t0, []Path{path("a", 20, 20)})
	b := path("b", 0, 0)
	b.Passed = false
	if d := h.Decide(t0.Add(time.Minute), []Path{path("a", 20, 20), b}); d.Switched() {
		t.Errorf("switched to a path on probation: %s", d.Reason)
	}
	if d := h.Decide(t0.Add(2*time.Minute), []Path{down("a"), b, path("c", 60, 60)}); d.Path != "c" {
		t.Errorf("got %q, want c, which has passed", d.Path)
	}
	if d := h.Decide(t0.Add(3*time.Minute), []Path{down("a"), b, down("c")}); d.Path != "b" || !strings.Contains(d.Reason, "on probation") {
		t.Errorf("got %q because %q, want b although on probation", d.Path, d.Reason)
	}
}

// All paths unreachable: the current one is kept, and it is said.
func TestHysteresisAllUnreachable(t *testing.T) {
	h := NewHysteresis(Default().Hysteresis, fixed(1))
	h.Decide(t0, []Path{path("a", 0, 0)})
	for i := range 100 {
		d := h.Decide(t0.Add(time.Duration(i)*time.Second), []Path{down("a"), down("b")})
		if d.Switched() || d.Reason != "no path can be reached: staying on a" {
			t.Fatalf("got %+v", d)
		}
	}
	if d := h.Decide(t0.Add(time.Hour), nil); d.Switched() {
		t.Errorf("with no path at all: %+v", d)
	}
}

// Deviation: of paths that are about as good the preferred one is taken again,
// after a minute, then two, four, up to ten.
func TestHysteresisReturn(t *testing.T) {
	wifi, cell := path("wlan0", 0, 0), path("wwan0", 1, 1)
	cell.Preference = 1
	lossy := path("wlan0", 10, 10)
	h := NewHysteresis(Default().Hysteresis, fixed(0))
	now := t0
	h.Decide(now, []Path{cell, wifi})
	if h.Current() != "wlan0" {
		t.Fatalf("first path %q, want the preferred one", h.Current())
	}
	for _, want := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 10 * time.Minute, 10 * time.Minute} {
		now = now.Add(20 * time.Second)
		if d := h.Decide(now, []Path{cell, lossy}); d.Path != "wwan0" {
			t.Fatalf("did not leave the lossy path: %s", d.Reason)
		}
		left := now.Add(time.Second)
		for now = left; h.Current() == "wwan0" && now.Before(left.Add(time.Hour)); now = now.Add(time.Second) {
			h.Decide(now, []Path{cell, wifi})
		}
		if got := now.Sub(left).Round(10 * time.Second); got != want {
			t.Errorf("returned after %v, want %v", got, want)
		}
	}
	// The paper knows no preference.
	h = NewHysteresis(Paper().Hysteresis, fixed(0))
	h.Decide(t0, []Path{cell})
	for i := range 3600 {
		if d := h.Decide(t0.Add(time.Duration(i)*time.Second), []Path{cell, path("wlan0", 1, 1)}); d.Switched() {
			t.Fatalf("the paper's profile switched on a tie: %s", d.Reason)
		}
	}
}

// Inside the margin nothing oscillates: whatever scores do there, a path is left
// at most once, for the preferred one.
func TestHysteresisInsideMargin(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 3))
		h := NewHysteresis(Default().Hysteresis, r)
		base := 60 * r.Float64()
		spread := max(1.99, 0.199*base)
		switches := 0
		for i := range 5000 {
			var paths []Path
			for j := range 3 {
				p := path(fmt.Sprint(j), 0, 0)
				p.Loss.Last = base + spread*r.Float64()
				p.Loss.Max = p.Loss.Last
				p.Preference = j % 2
				paths = append(paths, p)
			}
			d := h.Decide(t0.Add(time.Duration(i)*time.Second), paths)
			if d.Switched() && d.From != "" {
				switches++
			}
		}
		if switches > 1 {
			t.Errorf("seed %d: %d switches between %.1f and %.1f", seed, switches, base, base+spread)
		}
	}
}

// Section 4: five good probes, and a wait that doubles up to five minutes for a
// path that failed within ten.
func TestProbationWaitDoubles(t *testing.T) {
	p := NewProbation(Default().Probation)
	if s := p.Standing(t0, "a"); !s.Passed {
		t.Errorf("a path that never failed is on probation: %v", s)
	}
	now := t0
	for _, want := range []time.Duration{15, 30, 60, 120, 240, 300, 300, 300} {
		want *= time.Second
		p.Failed(now, "a")
		if got := p.Standing(now, "a").String(); got != "recovering 0/5" {
			t.Errorf("after a failure: %q", got)
		}
		began := now
		for i := 1; !p.Standing(now, "a").Passed; i++ {
			p.Good(now, "a", 1)
			if s := p.Standing(now, "a"); i == 3 && s.String() != "recovering 3/5" {
				t.Errorf("after three answers: %q", s)
			}
			now = now.Add(time.Second)
		}
		if got := now.Sub(began); got < want || got > want+2*time.Second {
			t.Errorf("passed after %v, want %v", got, want)
		}
	}
	now = now.Add(11 * time.Minute)
	p.Failed(now, "a")
	if got := p.Standing(now, "a"); got.Left != 15*time.Second {
		t.Errorf("after ten minutes of good conduct: %+v, want 15 s", got)
	}
}

func TestProbationMissStartsAgain(t *testing.T) {
	p := NewProbation(Default().Probation)
	p.Failed(t0, "a")
	p.Good(t0, "a", 4)
	p.Missed("a")
	p.Good(t0.Add(20*time.Second), "a", 1)
	if got := p.Standing(t0.Add(20*time.Second), "a"); got.Passed || got.Good != 1 || got.Left != 15*time.Second {
		t.Errorf("after a miss: %+v, want one answer and all of the wait", got)
	}
	p.Good(t0.Add(30*time.Second), "a", 9)
	if got := p.Standing(t0.Add(30*time.Second), "a").String(); got != "recovering 5/5, 5 s more" {
		t.Errorf("got %q", got)
	}
}

// F17: link up 8 s, down 12 s, for ten minutes: at most one switch.
func TestFlapping(t *testing.T) {
	for _, flapping := range []string{"wlan0", "wwan0"} {
		h, p := NewHysteresis(Default().Hysteresis, fixed(0)), NewProbation(Default().Probation)
		switches, shown := 0, false
		was := true
		for i := range 600 * 10 {
			at := time.Duration(i) * 100 * time.Millisecond
			now, up := t0.Add(at), at%(20*time.Second) < 8*time.Second
			if was && !up {
				p.Failed(now, flapping)
			}
			if was = up; up && i%10 == 0 {
				p.Good(now, flapping, 1)
			}
			var paths []Path
			for preference, name := range []string{"wlan0", "wwan0"} {
				s := p.Standing(now, name)
				shown = shown || s.String() == "recovering 3/5"
				paths = append(paths, Path{Name: name, Reachable: name != flapping || up, Passed: s.Passed, Preference: preference})
			}
			if d := h.Decide(now, paths); d.Switched() && d.From != "" {
				switches++
			}
		}
		if switches > 1 || !shown {
			t.Errorf("%s flaps: %d switches, want at most 1; probation shown: %v", flapping, switches, shown)
		}
	}
}
