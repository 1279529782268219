package pathsel

import (
	"math/rand/v2"
	"testing"
	"time"
)

// t0 is when every test begins.
var t0 = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// fixed draws the same number always.
type fixed int

func (f fixed) IntN(n int) int { return int(f) % n }

func path(name string, last, most float64) Path {
	return Path{Name: name, Reachable: true, Passed: true, Loss: Loss{Last: last, Max: most}}
}

func down(name string) Path {
	return Path{Name: name, Passed: true, Loss: Loss{Unreachable, Unreachable}}
}

// [MS] Algorithm 1, rule by rule.
func TestMSSCTPChoice(t *testing.T) {
	for _, tt := range []struct {
		name    string
		paths   []Path
		current string
		draw    int
		want    string
	}{
		{"score weighs max by a quarter and last by three", []Path{path("a", 10, 10), path("b", 0, 39)}, "a", 0, "b"},
		{"and turns at 40", []Path{path("a", 10, 10), path("b", 0, 41)}, "b", 0, "a"},
		{"smallest score wins", []Path{path("a", 3, 3), path("b", 1, 1), path("c", 2, 2)}, "a", 0, "b"},
		{"tie keeps the current path", []Path{path("a", 1, 1), path("b", 1, 1)}, "b", 0, "b"},
		{"tie without the current path is drawn", []Path{path("a", 9, 9), path("b", 1, 1), path("c", 1, 1)}, "a", 1, "c"},
		{"tie without the current path is drawn, the other way", []Path{path("a", 9, 9), path("b", 1, 1), path("c", 1, 1)}, "a", 0, "b"},
		{"unreachable counts 101", []Path{down("a"), path("b", 100, 100)}, "a", 0, "b"},
		{"all unreachable keeps the current path", []Path{down("a"), down("b"), down("c")}, "b", 2, "b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := Choose(tt.paths, tt.current, fixed(tt.draw))
			if got.Path.Name != tt.want || got.Reason == "" {
				t.Errorf("got %q because %q, want %q", got.Path.Name, got.Reason, tt.want)
			}
		})
	}
	if got := Choose(nil, "a", fixed(0)); got.Path.Name != "" || got.Reason == "" {
		t.Errorf("without paths: got %+v", got)
	}
}

// someone makes up to five paths.
func someone(r *rand.Rand) []Path {
	names := []string{"a", "b", "c", "d", "e"}
	paths := make([]Path, 1+r.IntN(len(names)))
	for i := range paths {
		last := float64(r.IntN(5)) * 25 * r.Float64()
		paths[i] = Path{Name: names[i], Reachable: r.IntN(3) > 0, Passed: r.IntN(3) > 0, Preference: r.IntN(3),
			Loss: Loss{Last: last, Max: max(last, 100*r.Float64())}, Slow: float64(r.IntN(2)) * 100 * r.Float64()}
	}
	return paths
}

// Neither Algorithm 1 nor the hysteresis ever picks a path that cannot be
// reached while another can.
func TestNeverUnreachable(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		h := NewHysteresis(Default().Hysteresis, r)
		now := t0
		for range 400 {
			paths := someone(r)
			reachable := make(map[string]bool)
			any := false
			for _, p := range paths {
				reachable[p.Name] = p.Reachable
				any = any || p.Reachable
			}
			now = now.Add(time.Duration(r.IntN(20_000)) * time.Millisecond)
			if got := Choose(paths, paths[0].Name, r); any && !reachable[got.Path.Name] {
				t.Fatalf("seed %d: Choose picked %q of %v", seed, got.Path.Name, paths)
			}
			if got := h.Decide(now, paths); any && !reachable[got.Path] || got.Reason == "" {
				t.Fatalf("seed %d: Decide picked %q of %v: %s", seed, got.Path, paths, got.Reason)
			}
		}
	}
}

// Comparison is antisymmetric and transitive, with and without the margin.
func TestCompareAntisymmetric(t *testing.T) {
	h := NewHysteresis(Default().Hysteresis, fixed(0))
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 2))
		a, b, c := someone(r)[0], someone(r)[0], someone(r)[0]
		if Compare(a, b) != -Compare(b, a) {
			t.Fatalf("seed %d: Compare(%v, %v) = %d, the other way %d", seed, a, b, Compare(a, b), Compare(b, a))
		}
		if Compare(a, b) <= 0 && Compare(b, c) <= 0 && Compare(a, c) > 0 {
			t.Fatalf("seed %d: not transitive: %v, %v, %v", seed, a, b, c)
		}
		if h.better(a, b) && h.better(b, a) {
			t.Fatalf("seed %d: each better than the other: %v, %v", seed, a, b)
		}
		if h.better(a, b) && Compare(a, b) >= 0 {
			t.Fatalf("seed %d: better by the margin but not better: %v, %v", seed, a, b)
		}
	}
}
