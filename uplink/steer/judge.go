package steer

import (
	"time"

	"sluice/pathsel"
)

// blindEvery is how often a carrier that lives counts as a good answer on a path
// that answers no probes.
const blindEvery = time.Second

// judge says which paths can be used, and why the others cannot.
func (s *Steer) judge(now time.Time) {
	for _, t := range s.tracks {
		usable, reason := s.verdict(now, t)
		if usable == t.usable {
			t.reason = reason
			continue
		}
		t.usable, t.reason, t.since = usable, reason, now
		if usable {
			s.log.Info("path "+t.Name+" can be used", "path", t.Name, "reason", reason, "standing", s.probation.Standing(now, t.Name).String())
			if s.losses.Get(now, t.Name).Last == pathsel.Unreachable {
				s.losses.Record(now, t.Name, 0)
			}
			// What was lost while it was dead is no measure of it now.
			t.recent, t.rate, t.smooth = pathsel.NewRecent(leastProbes), 0, 0
		} else {
			s.log.Warn("path "+t.Name+" cannot be used", "path", t.Name, "reason", reason)
			s.losses.Unreachable(t.Name)
			s.probation.Failed(now, t.Name)
		}
	}
}

// verdict judges one path.
func (s *Steer) verdict(now time.Time, t *track) (usable bool, reason string) {
	if !t.Up {
		t.life = pathsel.Dead
		return false, t.why()
	}
	s.blind(now, t)
	signs := pathsel.Signs{
		RTT: t.probes.RTT, RTTVar: t.probes.RTTVar,
		Waiting: t.waiting, Heard: t.heard,
		Answers: t.echoes, Unanswered: t.probes.Unanswered,
	}
	if t.probes.Last.After(signs.Heard) {
		signs.Heard = t.probes.Last
	}
	if !t.heard.IsZero() && !t.echoes {
		signs.Unanswered = 0 // nobody answers probes here, and the carriers live
	}
	if signs.RTT == 0 {
		signs.RTT, signs.RTTVar = t.rtt, t.rtt/2 // RFC 6298 (2.2)
	}
	if signs.Heard.Before(t.upSince) {
		signs.Heard = time.Time{} // of an earlier life of the link
	}
	life, why := pathsel.Judge(now, signs)
	switch life {
	case pathsel.Dead:
		if t.life != pathsel.Dead {
			t.deadAt = now
		}
	case pathsel.Suspect:
		if t.life != pathsel.Suspect {
			t.suspectAt = now
		}
	}
	if t.life == pathsel.Dead && !signs.Heard.After(t.deadAt) {
		life = pathsel.Dead // until it shows a sign of life
		why = t.reason
	}
	t.life = life
	switch {
	case life == pathsel.Dead:
		return false, why
	case signs.Heard.IsZero():
		return false, "not heard of yet"
	}
	return true, why
}

// blind finds out whether probes say anything about a path: where a carrier is
// heard although probes are not answered, something drops them.
func (s *Steer) blind(now time.Time, t *track) {
	if t.probes.Unanswered < 4 {
		t.silentAt = time.Time{}
		return
	}
	if t.silentAt.IsZero() {
		t.silentAt = now
		for _, c := range s.carriers {
			if c.Kind == pathsel.TCP && c.Path == t.Name && hasJoined(c) {
				s.opt.Sender.Ask(c.Slot) // TCP may pass where UDP does not (F20)
			}
		}
	}
	if t.echoes && t.heard.After(t.silentAt) && t.heard.After(t.upSince) {
		t.echoes = false
		s.log.Info("path "+t.Name+" drops probes; its carriers are watched instead", "path", t.Name)
	}
	if !t.echoes && t.heard.After(t.upSince) && now.Sub(t.blindAt) >= blindEvery {
		t.blindAt = now
		s.probation.Good(now, t.Name, 1)
	}
}

// why says what is wrong with a link that is not up.
func (t *track) why() string {
	if t.Path.Reason == "" {
		return "the link is down"
	}
	return t.Path.Reason
}

// doubtful says whether something must be looked at often.
func (s *Steer) doubtful(now time.Time) bool {
	for _, t := range s.tracks {
		if t.Up && (t.life == pathsel.Suspect || !t.usable && now.Sub(t.upSince) < unknownFor) {
			return true
		}
	}
	return s.attempt.state == attemptTrying && now.Sub(s.attempt.since) < attemptFor
}
