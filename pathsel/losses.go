package pathsel

import (
	"math"
	"time"
)

// Unreachable is the loss rate that [MS] Algorithm 1 gives to a path that cannot
// be reached: worse than losing everything.
const Unreachable = 101

// Loss is one path's row of [MS] Algorithm 1: the latest and the largest loss
// rate, in percent.
type Loss struct{ Last, Max float64 }

// Score is line 5 of [MS] Algorithm 1; the smaller, the better.
func (l Loss) Score() float64 { return 0.25*l.Max + 0.75*l.Last }

// Losses are the arrays Max and Last of [MS] Algorithm 1. A path that was never
// recorded has 0 for both, as in the paper.
type Losses struct {
	window time.Duration
	paths  map[string]*lossRow
}

// NewLosses returns an empty table. Max is the largest rate of the window that
// ends now, to a sixtieth of it; with a window of 0 it never decays, which is
// the paper's rule and condemns a path for ever for one bad minute.
func NewLosses(window time.Duration) *Losses {
	return &Losses{window: window, paths: make(map[string]*lossRow)}
}

// lossRow is one path's history.
type lossRow struct {
	last        float64
	unreachable bool
	ever        float64 // the largest of all times, for a window of 0
	largest     peak
}

// Record enters a measured loss rate; the path is reachable then.
func (l *Losses) Record(now time.Time, path string, percent float64) {
	if math.IsNaN(percent) {
		return
	}
	percent = min(max(percent, 0), 100)
	r := l.row(path)
	r.last, r.unreachable = percent, false
	r.ever = max(r.ever, percent)
	if l.window > 0 {
		r.largest.add(now, percent)
	}
}

// Unreachable enters that the path cannot be reached: line 2 of [MS] Algorithm
// 1, Max = Last = 101. Without a window Max keeps it for ever, as in the paper;
// with one, the next Record takes it back, because probation (see Probation) is
// what a path that comes back has to pass.
func (l *Losses) Unreachable(path string) {
	r := l.row(path)
	r.unreachable = true
	r.ever = Unreachable
}

// Get returns a path's row.
func (l *Losses) Get(now time.Time, path string) Loss {
	r, ok := l.paths[path]
	switch {
	case !ok:
		return Loss{}
	case r.unreachable:
		return Loss{Last: Unreachable, Max: Unreachable}
	case l.window == 0:
		return Loss{Last: r.last, Max: r.ever}
	}
	return Loss{Last: r.last, Max: max(r.last, r.largest.get(now))}
}

// Forget removes a path that no longer exists.
func (l *Losses) Forget(path string) { delete(l.paths, path) }

func (l *Losses) row(path string) *lossRow {
	r, ok := l.paths[path]
	if !ok {
		r = &lossRow{largest: peak{window: l.window}}
		l.paths[path] = r
	}
	return r
}
