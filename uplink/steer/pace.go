package steer

import (
	"time"

	"sluice/pathsel"
)

// The intervals between probes. On metered paths they are long: a probe and its
// answer are 80 bytes, one a minute 115 kB a day.
const (
	paceDoubt   = 80 * time.Millisecond
	doubtFor    = 3 * time.Second // then it is dead, or drops probes
	paceUnknown = 200 * time.Millisecond
	unknownFor  = 3 * time.Second
	paceFull    = 250 * time.Millisecond // while data fills the path
	paceSoon    = time.Second            // a path that comes back, or may be needed soon

	paceLossy        = 5 * time.Second // a path that lost lately: does it still
	paceLossyMetered = 30 * time.Second
	paceIdle         = 15 * time.Second
	paceIdleMetered  = time.Minute

	unpaced = -1 // the prober was told nothing yet

	needLoss = 2.0 // percent on the current path, and the others may be needed soon
)

// pace sets the interval of every prober.
func (s *Steer) pace(now time.Time) {
	for _, t := range s.tracks {
		if t.Prober == nil {
			continue
		}
		if want := s.interval(now, t); want != t.paced {
			t.paced = want
			t.Prober.Pace(want)
		}
	}
}

func (s *Steer) interval(now time.Time, t *track) time.Duration {
	metered := func(no, yes time.Duration) time.Duration {
		if t.Metered {
			return yes
		}
		return no
	}
	switch {
	case !t.Up:
		return 0
	case t.life == pathsel.Suspect && now.Sub(t.suspectAt) < doubtFor:
		return paceDoubt
	case t.life != pathsel.Dead && !t.usable && now.Sub(t.upSince) < unknownFor:
		return paceUnknown
	case t.life == pathsel.Dead:
		switch dead := now.Sub(t.deadAt); {
		case dead < 30*time.Second:
			return paceSoon
		case dead < 5*time.Minute:
			return metered(paceSoon, paceLossy)
		}
		return metered(paceLossy, paceIdleMetered)
	}
	if t.Name == s.hysteresis.Current() && s.effective() == pathsel.SCTP {
		// Whether a queue stands there, which only TCP shows by itself. When a loss
		// is noticed, it is too late to look.
		switch {
		case !s.asked.at.IsZero():
			return paceDoubt
		case !s.full.since.IsZero():
			return paceFull
		}
	}
	if standing := s.probation.Standing(now, t.Name); !standing.Passed {
		if standing.Good < standing.Need {
			return paceSoon
		}
		return metered(paceSoon, paceLossy)
	}
	if t.Name != s.hysteresis.Current() {
		if current := s.losses.Get(now, s.hysteresis.Current()).Last; s.moving && current >= needLoss {
			return metered(paceSoon, paceLossy)
		}
		if s.losses.Get(now, t.Name).Last > 0 {
			return metered(paceLossy, paceLossyMetered)
		}
	}
	return metered(paceIdle, paceIdleMetered)
}
