package pathsel

import (
	"fmt"
	"slices"
	"time"
)

// HysteresisOptions say how much better another path must be.
type HysteresisOptions struct {
	Points   float64       // the other's score must be lower by so many points
	Share    float64       // and by this share of the current one's
	HoldDown time.Duration // after a switch only an unreachable path is left
	// Return is for how long a path that is preferred to the current one must have
	// been about as good before it is taken again; it doubles with each such
	// return, up to ReturnMost, and starts anew after one that lasted so long. 0:
	// never, as in the paper, which knows no preference.
	Return, ReturnMost time.Duration
}

// Hysteresis is [MS] Algorithm 1 with inertia: it knows the current path and
// leaves it only for good reason.
type Hysteresis struct {
	opt    HysteresisOptions
	random Random

	current  string
	switched time.Time // when the current path was taken in place of another
	asGood   map[string]time.Time
	back     time.Duration // the present Return
	returned bool          // to the current path, for being preferred
}

// NewHysteresis returns a Hysteresis with no current path.
func NewHysteresis(opt HysteresisOptions, random Random) *Hysteresis {
	return &Hysteresis{opt: opt, random: random, asGood: make(map[string]time.Time), back: opt.Return}
}

// Decision is which path is primary from now on.
type Decision struct {
	Path   string
	From   string // the path before; the same if it stays
	Reason string

	Score, FromScore float64 // of both, in points
}

// Switched says whether the path is another than before.
func (d Decision) Switched() bool { return d.Path != d.From }

// Current is the path chosen last, empty if there was none.
func (h *Hysteresis) Current() string { return h.current }

// Decide chooses the primary path.
func (h *Hysteresis) Decide(now time.Time, paths []Path) Decision {
	at := slices.IndexFunc(paths, func(p Path) bool { return p.Name == h.current })
	h.watch(now, paths, at)
	if at < 0 || !paths[at].Reachable {
		return h.replace(now, paths, at)
	}
	current := paths[at]
	stay := func(reason string) Decision {
		return Decision{Path: h.current, From: h.current, Score: current.Score(), FromScore: current.Score(), Reason: reason}
	}
	if left := h.opt.HoldDown - now.Sub(h.switched); !h.switched.IsZero() && left > 0 {
		return stay(fmt.Sprintf("switched %.1f s ago: staying on %s for %.1f s more unless it dies", now.Sub(h.switched).Seconds(), h.current, left.Seconds()))
	}
	fit := usable(paths, func(p Path) bool { return p.Passed || p.Name == h.current })
	best := Choose(fit, h.current, h.random).Path
	if h.better(best, current) {
		return h.take(now, best, current, fmt.Sprintf("%s is better than %s", best, current))
	}
	for _, p := range fit {
		if since, ok := h.asGood[p.Name]; ok && now.Sub(since) >= h.back {
			reason := fmt.Sprintf("%s is preferred and about as good as %s for %.0f s", p, current, now.Sub(since).Seconds())
			d := h.take(now, p, current, reason)
			h.back, h.returned = min(2*h.back, h.opt.ReturnMost), true
			return d
		}
	}
	if best.Name != h.current {
		return stay(fmt.Sprintf("%s is not better than %s by %.0f points and %.0f %%", best, current, h.opt.Points, 100*h.opt.Share))
	}
	return stay(current.String() + " is the best path")
}

// replace chooses a path when the current one cannot be used. paths[at] is the
// current one; at is negative if there is none.
func (h *Hysteresis) replace(now time.Time, paths []Path, at int) Decision {
	current := Path{Name: h.current}
	if at >= 0 {
		current = paths[at]
	}
	fit := usable(paths, func(p Path) bool { return p.Passed })
	probation := ""
	if len(fit) == 0 {
		fit, probation = usable(paths, func(Path) bool { return true }), ", on probation, but there is no other"
	}
	if len(fit) == 0 {
		if at < 0 && len(paths) > 0 && h.current == "" {
			first := slices.MinFunc(paths, func(a, b Path) int { return a.Preference - b.Preference })
			return h.take(now, first, current, "no path can be reached yet; beginning with "+first.Name)
		}
		return Decision{Path: h.current, From: h.current, Score: Unreachable, FromScore: Unreachable, Reason: "no path can be reached: staying on " + h.current}
	}
	best := Choose(fit, h.current, h.random).Path
	if h.opt.Return > 0 { // preferences count: they break ties, instead of the draw
		for _, p := range fit {
			if p.Preference < best.Preference && !h.better(best, p) {
				best = p
			}
		}
	}
	if h.current == "" {
		return h.take(now, best, current, "first path: "+best.String()+probation)
	}
	return h.take(now, best, current, fmt.Sprintf("%s cannot be reached; %s%s", h.current, best, probation))
}

func (h *Hysteresis) take(now time.Time, p, from Path, reason string) Decision {
	if h.returned && now.Sub(h.switched) >= h.opt.ReturnMost {
		h.back = h.opt.Return
	}
	h.returned = false
	if h.current != "" {
		h.switched = now
	}
	h.current = p.Name
	clear(h.asGood)
	return Decision{Path: p.Name, From: from.Name, Score: p.Score(), FromScore: from.Score(), Reason: reason}
}

// watch notes since when each path that is preferred to the current one has
// been about as good.
func (h *Hysteresis) watch(now time.Time, paths []Path, at int) {
	if h.opt.Return == 0 || at < 0 {
		return
	}
	for _, p := range paths {
		if p.Preference >= paths[at].Preference || !p.Reachable || !p.Passed || h.better(paths[at], p) {
			delete(h.asGood, p.Name)
		} else if _, ok := h.asGood[p.Name]; !ok {
			h.asGood[p.Name] = now
		}
	}
}

// better says whether a is better than b by the margin. It is never true both
// ways.
func (h *Hysteresis) better(a, b Path) bool {
	sa, sb := a.Score(), b.Score()
	return sa < sb && sa <= sb-h.opt.Points && sa <= sb*(1-h.opt.Share)
}

func usable(paths []Path, also func(Path) bool) []Path {
	var out []Path
	for _, p := range paths {
		if p.Reachable && also(p) {
			out = append(out, p)
		}
	}
	return out
}
