package steer

import (
	"time"

	"sluice/pathsel"
)

const (
	calmLoss = 1.0              // percent; at no more SCTP is as good as TCP
	calmMost = 10 * time.Minute // of waiting for it to last
	calmMin  = time.Minute
	patience = time.Second // with a preferred path that has only just come up
	// askedLeast and askedFor bound how long the answer to a question takes.
	askedLeast = 300 * time.Millisecond
	askedFor   = 2 * time.Second
	relaxAll   = 10 * time.Second // between looks at whether fewer carriers do
	// relaxSpare times the loss, and fewer carriers would still do: loss rates are
	// never steady.
	relaxSpare = 1.4
)

// decide chooses the path and the scheme. [MS] Algorithm 3 says when: first
// Algorithm 1, then, if no other path is better, Algorithm 2. The appliance first
// asks how much is lost indeed, and whether that is congestion.
func (s *Steer) decide(now time.Time) {
	o := s.method.Observe(now, s.counts)
	if o.Ended && o.Rate > 0 {
		s.log.Debug("slot ended", "loss", o.Rate, "next", o.Slot, "act", o.Act, "reason", o.Reason)
	}
	t := s.track(s.hysteresis.Current())
	var answer *answer
	switch {
	case t == nil || !t.usable:
		s.asked = question{}
	case !s.opt.Profile.Continual:
		if o.Ended {
			s.losses.Record(now, t.Name, o.Rate)
		}
	default:
		if answer = s.ask(now, o); answer != nil && !answer.Congestion {
			s.losses.Record(now, t.Name, answer.Loss)
		}
	}
	if !s.patient(now, t) && (s.opt.Profile.Continual || o.Act || t == nil || !t.usable) {
		s.decision = s.hysteresis.Decide(now, s.candidates(now))
		if s.decision.Switched() {
			s.cause, s.asked, s.turned = s.decision.Reason, question{}, now
			if s.decision.FromScore == pathsel.Unreachable {
				s.fled = now
			}
			s.method.Restart(now)
			if t := s.track(s.hysteresis.Current()); t != nil {
				s.measureFit(now, t)
			}
			return
		}
	}
	switch {
	case now.Sub(s.changed) < s.opt.Profile.Hysteresis.HoldDown:
	case o.Act && !s.opt.Profile.Continual:
		s.decideScheme(now, s.condition(now, o.Rate), o.Reason)
	case answer != nil:
		if doubtful := s.decideScheme(now, answer.Condition, answer.why); doubtful && now.Sub(answer.question.at) < askedFor {
			s.asked = answer.question // the packets that come next will tell
		}
	case s.asked.at.IsZero():
		s.relax(now)
	}
}

// patient says whether the current path has only just come up: that another one
// answers a moment earlier does not make it the better one. Standbys carry
// meanwhile.
func (s *Steer) patient(now time.Time, t *track) bool {
	return t != nil && t.Up && t.life == pathsel.Alive && !t.usable && now.Sub(t.upSince) < patience
}

// question is what Method asked for. What makes it act may be a few packets, or a
// queue that has just overflowed; the packets that come next tell more.
type question struct {
	at     time.Time
	why    string
	counts pathsel.Counts // since it was asked
}

// answer is what came out.
type answer struct {
	pathsel.Condition
	question
}

// ask begins or answers a question, once enough is counted: it takes a queue time
// to show, and packets to be found lost.
func (s *Steer) ask(now time.Time, o pathsel.Outcome) *answer {
	q := &s.asked
	if q.at.IsZero() {
		if o.Act {
			*q = question{at: now, why: o.Reason}
		}
		return nil
	}
	q.counts = q.counts.Plus(s.counts)
	loss, doubt, least := o.Rate, 0.0, askedLeast
	if t := s.track(s.hysteresis.Current()); t != nil {
		least = max(least, 2*t.rtt) // what was sent before is not found lost any more
	}
	switch asked := now.Sub(q.at); {
	case q.counts.Sent >= leastPackets && asked >= least,
		q.counts.Sent >= leastPackets/4 && asked >= 2*least: // hardly anything passes
		loss, doubt = q.counts.Percent(), q.counts.Doubt()
	case asked <= max(askedFor, least):
		return nil
	default:
		doubt = loss // so few tell nothing
	}
	a := &answer{s.condition(now, loss), *q}
	a.Doubt = doubt
	*q = question{}
	return a
}

// candidates are the paths as pathsel sees them.
func (s *Steer) candidates(now time.Time) []pathsel.Path {
	paths := make([]pathsel.Path, 0, len(s.tracks))
	for _, t := range s.tracks {
		var others []string
		for _, o := range s.tracks {
			if o != t && o.usable {
				others = append(others, o.Name)
			}
		}
		paths = append(paths, pathsel.Path{
			Name: t.Name, Reachable: t.usable, Preference: t.Preference,
			Loss:   s.losses.Get(now, t.Name),
			Slow:   s.slowness.Points(now, t.Name, others),
			Passed: s.probation.Standing(now, t.Name).Passed,
		})
	}
	return paths
}

// decideScheme is [MS] Algorithm 2. It reports whether more packets might decide
// otherwise.
func (s *Steer) decideScheme(now time.Time, c pathsel.Condition, why string) (doubtful bool) {
	current := s.effectiveScheme()
	a := s.predictor.Answer(now, c, current, s.usableVariants())
	fewer := a.Scheme.Protocol == current.Protocol && a.Scheme.Carriers < current.Carriers
	switch {
	case a.Doubtful:
	case a.Change && (!fewer || c.Congestion): // else relax sees whether fewer do
		s.adopt(now, a.Scheme, why+"; "+a.Reason)
	case s.stayed != current && c.Loss > calmLoss: // else it was over before it was looked at
		s.stayed = current
		s.log.Info("loss, but nothing better is known", "path", s.hysteresis.Current(), "scheme", current.String(),
			"why", why, "paths", s.decision.Reason, "reason", a.Reason)
	}
	return a.Doubtful
}

// relax takes back what loss had made worth it, once it is gone.
func (s *Steer) relax(now time.Time) {
	if s.opt.Profile.Toggle || now.Sub(s.changed) < relaxAll {
		return
	}
	t := s.track(s.hysteresis.Current())
	if t == nil {
		return
	}
	if s.scheme.Carriers > 1 {
		current := s.scheme
		c := s.condition(now, t.smooth*relaxSpare)
		if a := s.predictor.Answer(now, c, current, map[string]string{current.Protocol: current.Variant}); a.Change && a.Scheme.Carriers < current.Carriers {
			s.adopt(now, a.Scheme, a.Reason)
			return
		}
	}
	if s.scheme.Protocol == pathsel.SCTP || s.attempt.state != attemptJoined || s.unfit != "" || t.smooth > calmLoss {
		s.calm.since = time.Time{}
		return
	}
	if s.calm.since.IsZero() {
		s.calm.since = now
	}
	wait := max(s.calm.wait, calmMin)
	if now.Sub(s.calm.since) < wait {
		return
	}
	s.calm = calm{wait: min(2*wait, calmMost), came: now}
	s.adopt(now, pathsel.Scheme{Protocol: pathsel.SCTP, Variant: s.usableVariants()[pathsel.SCTP], Carriers: 1},
		"loss was no more than 1 % for "+wait.String()+": SCTP does as well and follows the paths by itself")
}

// calm is the way back to SCTP.
type calm struct {
	since time.Time     // since when there is no loss worth mentioning; zero if there is
	wait  time.Duration // how long it must be so, doubled each time
	came  time.Time     // when SCTP was last taken again
}

func (s *Steer) adopt(now time.Time, scheme pathsel.Scheme, reason string) {
	if scheme.Protocol == pathsel.TCP && now.Sub(s.calm.came) >= calmMost {
		s.calm.wait = 0 // SCTP did well for long
	}
	s.scheme, s.changed, s.cause = scheme, now, reason
	s.stayed = pathsel.Scheme{}
}

func (s *Steer) condition(now time.Time, loss float64) pathsel.Condition {
	c := pathsel.Condition{Path: s.hysteresis.Current(), Loss: min(loss, 100)}
	if t := s.track(c.Path); t != nil {
		c.RTT = t.rtt
		c.Congestion, c.Why = s.congested(now, t)
	}
	return c
}

// congested says whether what a path loses is congestion, and why.
func (s *Steer) congested(now time.Time, t *track) (bool, string) {
	return t.queue.Is(now, s.scheme.Carriers, s.full.rate)
}

// usableVariants are the protocols that can be used now.
func (s *Steer) usableVariants() map[string]string {
	v := map[string]string{}
	if s.opt.DialTCP != nil {
		v[pathsel.TCP] = s.variants[pathsel.TCP]
	}
	if s.attempt.state == attemptJoined && s.unfit == "" {
		v[pathsel.SCTP] = "tuned"
	}
	return v
}

// effective is the protocol that carries: SCTP if it is wanted and there.
func (s *Steer) effective() string {
	if s.opt.DialTCP == nil || s.scheme.Protocol == pathsel.SCTP && s.attempt.state == attemptJoined && s.unfit == "" {
		return pathsel.SCTP
	}
	return pathsel.TCP
}

// effectiveScheme is the scheme in effect.
func (s *Steer) effectiveScheme() pathsel.Scheme {
	if s.effective() == s.scheme.Protocol {
		return s.scheme
	}
	return pathsel.Scheme{Protocol: pathsel.TCP, Variant: s.variants[pathsel.TCP], Carriers: 1}
}
