package pathsel

import (
	"fmt"
	"time"
)

// ProbationOptions say what a path that failed must do before it may win again.
type ProbationOptions struct {
	Good     int           // answers in a row
	Wait     time.Duration // for so long without a miss, after the first failure
	WaitMost time.Duration // the wait doubles with each failure, up to this
	Memory   time.Duration // failures are forgotten so long after the path has passed
}

// Probation keeps paths that came back from winning before they have shown that
// they stay: a link that is up for 8 s and down for 12 s is left once and not
// followed.
type Probation struct {
	opt   ProbationOptions
	paths map[string]*parole
}

type parole struct {
	failures int // since the last long time without one
	on       bool
	good     int
	since    time.Time // of the first good answer in the row
	passed   time.Time
}

// NewProbation returns a Probation with no path on it.
func NewProbation(opt ProbationOptions) *Probation {
	return &Probation{opt: opt, paths: make(map[string]*parole)}
}

// Standing is where a path stands.
type Standing struct {
	Passed     bool // it is not on probation
	Good, Need int  // answers in a row
	Left       time.Duration
}

// String is for the status: "recovering 3/5".
func (s Standing) String() string {
	if s.Passed {
		return "passed"
	}
	if s.Good < s.Need {
		return fmt.Sprintf("recovering %d/%d", s.Good, s.Need)
	}
	return fmt.Sprintf("recovering %d/%d, %.0f s more", s.Need, s.Need, s.Left.Seconds())
}

// Failed puts a path on probation.
func (p *Probation) Failed(now time.Time, path string) {
	r, ok := p.paths[path]
	if !ok {
		r = new(parole)
		p.paths[path] = r
	}
	if !r.on && now.Sub(r.passed) >= p.opt.Memory {
		r.failures = 0
	}
	r.failures++
	r.on, r.good = true, 0
}

// Good counts answers in a row on a path.
func (p *Probation) Good(now time.Time, path string, answers int) {
	if r, ok := p.paths[path]; ok && r.on && answers > 0 {
		if r.good == 0 {
			r.since = now
		}
		r.good = min(r.good+answers, p.opt.Good)
	}
}

// Missed starts the row again.
func (p *Probation) Missed(path string) {
	if r, ok := p.paths[path]; ok {
		r.good = 0
	}
}

// Forget removes a path that no longer exists.
func (p *Probation) Forget(path string) { delete(p.paths, path) }

// Standing returns where a path stands; a path that has now passed is off
// probation.
func (p *Probation) Standing(now time.Time, path string) Standing {
	r, ok := p.paths[path]
	if !ok {
		return Standing{Passed: true, Good: p.opt.Good, Need: p.opt.Good}
	}
	if r.on {
		s := Standing{Good: r.good, Need: p.opt.Good, Left: p.wait(r)}
		if r.good > 0 {
			s.Left = max(0, s.Left-now.Sub(r.since))
		}
		if r.good < p.opt.Good || s.Left > 0 {
			return s
		}
		r.on, r.passed = false, now
	}
	if now.Sub(r.passed) >= p.opt.Memory {
		delete(p.paths, path)
	}
	return Standing{Passed: true, Good: p.opt.Good, Need: p.opt.Good}
}

// wait is for how long a path must be good.
func (p *Probation) wait(r *parole) time.Duration {
	w := p.opt.Wait
	for i := 1; i < r.failures && w < p.opt.WaitMost; i++ {
		w *= 2
	}
	return min(w, p.opt.WaitMost)
}
