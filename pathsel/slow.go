package pathsel

import "time"

// SlowOptions say when a path that loses nothing counts as bad all the same.
type SlowOptions struct {
	Window time.Duration // what the path was seen to give is remembered for so long; 0 turns the whole off
	Fall   float64       // a path that is full and gives less than this share of its best is slow
	Times  float64       // a path that is not full and takes so many times its shortest round trip,
	Rise   time.Duration // and so much longer, is slow
}

// Slowness is what [MS] Algorithm 1 does not see: a path that becomes slow and
// loses nothing is never left by it (see [HT], section 3.2, which wants it left).
// What a path gives shows in its rate while it is full, and in its round trip
// while it is not: a round trip under load is mostly the sender's own queue.
type Slowness struct {
	opt   SlowOptions
	paths map[string]*pace
}

type pace struct {
	best     peak   // rate while full
	shortest trough // round trip while not full, seconds
	rate     float64
	rateAt   time.Time
	rtt      float64
	rttAt    time.Time
}

// NewSlowness returns a Slowness that knows no path.
func NewSlowness(opt SlowOptions) *Slowness {
	return &Slowness{opt: opt, paths: make(map[string]*pace)}
}

// Full enters the rate at which a path delivered, in bytes a second, averaged
// over seconds in which more waited all the time.
func (s *Slowness) Full(now time.Time, path string, rate float64) {
	if s.opt.Window > 0 && rate > 0 {
		p := s.path(path)
		p.best.add(now, rate)
		p.rate, p.rateAt = rate, now
	}
}

// Light enters the smoothed round trip of a path that was not full.
func (s *Slowness) Light(now time.Time, path string, rtt time.Duration) {
	if s.opt.Window > 0 && rtt > 0 {
		p := s.path(path)
		p.shortest.add(now, rtt.Seconds())
		p.rtt, p.rttAt = rtt.Seconds(), now
	}
}

// Forget removes a path that no longer exists.
func (s *Slowness) Forget(path string) { delete(s.paths, path) }

// Points is what counts against a path, from 0 to 100, growing from 0 at the
// bounds of the options so that it does not jump. A path that gives little counts
// as slow only if one of the others may give more: a path of which nothing is
// known may.
func (s *Slowness) Points(now time.Time, path string, others []string) float64 {
	p, ok := s.paths[path]
	if !ok {
		return 0
	}
	var points float64
	if best := p.best.get(now); now.Sub(p.rateAt) < s.opt.Window && p.rate < s.opt.Fall*best && s.faster(now, others, p.rate) {
		points = 100 * (1 - p.rate/(s.opt.Fall*best))
	}
	if least := p.shortest.get(now); least > 0 && now.Sub(p.rttAt) < s.opt.Window && p.rtt > s.opt.Times*least && p.rtt > least+s.opt.Rise.Seconds() {
		points = max(points, 100*(1-s.opt.Times*least/p.rtt))
	}
	return points
}

func (s *Slowness) faster(now time.Time, others []string, rate float64) bool {
	for _, o := range others {
		p, ok := s.paths[o]
		if !ok || now.Sub(p.rateAt) >= s.opt.Window || p.rate > rate {
			return true
		}
	}
	return false
}

func (s *Slowness) path(name string) *pace {
	p, ok := s.paths[name]
	if !ok {
		p = &pace{best: peak{window: s.opt.Window}, shortest: trough{peak{window: s.opt.Window}}}
		s.paths[name] = p
	}
	return p
}
