package pathsel

import (
	"fmt"
	"slices"
)

// Path is a path as the choice sees it.
type Path struct {
	Name      string
	Reachable bool
	Loss      Loss
	// Slow is what counts against the path beside its losses, in points; see
	// Slowness. Always 0 in the paper.
	Slow float64
	// Preference orders paths that are equally good, 0 first; only Hysteresis
	// looks at it.
	Preference int
	// Passed says that the path is not on probation; only Hysteresis looks at it.
	Passed bool
}

// Score is the path's score, from 0 to 100, or 101 if it cannot be reached.
func (p Path) Score() float64 {
	if !p.Reachable {
		return Unreachable
	}
	return min(100, p.Loss.Score()+p.Slow)
}

// String gives the score and what it is made of.
func (p Path) String() string {
	switch {
	case !p.Reachable:
		return p.Name + " unreachable"
	case p.Slow > 0:
		return fmt.Sprintf("%s score %.1f (loss %.1f %%, most %.1f %%, slow %.0f)", p.Name, p.Score(), p.Loss.Last, p.Loss.Max, p.Slow)
	}
	return fmt.Sprintf("%s score %.1f (loss %.1f %%, most %.1f %%)", p.Name, p.Score(), p.Loss.Last, p.Loss.Max)
}

// Compare orders two paths: negative if a is the better one, positive if b is,
// 0 if neither. It is antisymmetric and transitive.
func Compare(a, b Path) int {
	switch sa, sb := a.Score(), b.Score(); {
	case sa < sb:
		return -1
	case sa > sb:
		return 1
	}
	return 0
}

// Choice is an answer of Choose.
type Choice struct {
	Path   Path
	Reason string
}

// Choose is [MS] Algorithm 1, lines 3 to 14: the path with the smallest score;
// among several the current one if it is there, else one drawn at random. If no
// path can be reached it is the current one, whatever the draw would say: the
// paper leaves that open. With no paths at all, the choice is empty.
func Choose(paths []Path, current string, random Random) Choice {
	if len(paths) == 0 {
		return Choice{Reason: "there is no path"}
	}
	at := slices.IndexFunc(paths, func(p Path) bool { return p.Name == current })
	if at >= 0 && !slices.ContainsFunc(paths, func(p Path) bool { return p.Reachable }) {
		return Choice{Path: paths[at], Reason: "no path can be reached: staying on " + current}
	}
	var best []Path
	for _, p := range paths {
		switch {
		case len(best) == 0 || Compare(p, best[0]) < 0:
			best = append(best[:0], p)
		case Compare(p, best[0]) == 0:
			best = append(best, p)
		}
	}
	if len(best) == 1 {
		return Choice{Path: best[0], Reason: "smallest score: " + best[0].String()}
	}
	if i := slices.IndexFunc(best, func(p Path) bool { return p.Name == current }); i >= 0 {
		return Choice{Path: best[i], Reason: fmt.Sprintf("%d paths have the smallest score, the current one among them: %s", len(best), best[i])}
	}
	p := best[random.IntN(len(best))]
	return Choice{Path: p, Reason: fmt.Sprintf("drawn among %d paths with the smallest score: %s", len(best), p)}
}
