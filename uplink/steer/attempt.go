package steer

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"sluice/pathsel"
	"sluice/uplink"
)

const (
	attemptFor   = 5 * time.Second // SCTP may take so long to join while TCP is there
	attemptFirst = 5 * time.Second // until the next attempt; doubles with each
	attemptMost  = 10 * time.Minute
	// provenAfter an association has stood so long, the waits start anew.
	provenAfter = time.Minute
	// stallLeast is how long data may wait on an association that hears nothing,
	// while its path lives: at 2 % of loss a chunk an hour is lost three times in a
	// row, for which the kernel's timeouts are 0.2, 0.4 and 0.8 s.
	stallLeast = 1800 * time.Millisecond
	// strandedLeast is the same when the primary has died and the association was
	// told to move: the kernel has had its retransmission timeout by then.
	strandedLeast = 700 * time.Millisecond
	moveFor       = 400 * time.Millisecond // an association may take to show life

	addressFor = 3 * time.Second // after a link comes up its tunnel may take so long
	renewAfter = 5 * time.Second // a new address must stay so long
	renewFor   = 20 * time.Second
	renewAgain = time.Minute
)

type attemptState int

const (
	attemptNone    attemptState = iota // nothing to dial with, or not wanted at all
	attemptTrying                      // dialled, not joined
	attemptJoined                      // an association has joined the session
	attemptResting                     // given up until a time
)

// attempt is the state of SCTP as a whole (F20).
type attempt struct {
	state  attemptState
	since  time.Time // of state
	until  time.Time // of resting
	wait   time.Duration
	reason string
}

func (a *attempt) set(now time.Time, state attemptState, reason string) {
	if a.state != state {
		a.state, a.since = state, now
	}
	a.reason = reason
}

// tryProtocol sees whether SCTP can be had.
func (s *Steer) tryProtocol(now time.Time) {
	a := &s.attempt
	if s.opt.DialSCTP == nil {
		a.reason = s.opt.NoSCTP
		return
	}
	if s.lone {
		const why = "there is one path only, and by one TCP carries as much as SCTP or more"
		if s.effective() == pathsel.SCTP {
			s.cause = why
		}
		a.set(now, attemptNone, why)
		return
	}
	main := s.carrier(s.mainSlot())
	joined := main != nil && hasJoined(*main)
	switch a.state {
	case attemptNone, attemptResting:
		switch {
		case len(s.addresses) == 0:
			a.set(now, attemptNone, "SCTP: no path has an address for it")
		case a.state == attemptNone && s.expectsAddress(now):
			a.reason = "SCTP: waiting for the tunnels of all paths"
		case a.state == attemptNone || !now.Before(a.until):
			a.set(now, attemptTrying, "SCTP: dialling")
		}
	case attemptTrying:
		switch {
		case joined:
			cause := "SCTP has joined"
			if a.wait > 0 {
				cause = "SCTP answers again; before: " + a.reason
			}
			if s.scheme.Protocol == pathsel.SCTP {
				s.cause = cause
			}
			a.set(now, attemptJoined, "SCTP over all paths")
		case len(s.addresses) == 0:
			a.set(now, attemptNone, "SCTP: no path has an address for it")
		case now.Sub(a.since) >= attemptFor && s.otherWay():
			why := "no answer"
			if main != nil && main.Reason != "" {
				why = main.Reason
			}
			s.rest(now, fmt.Sprintf("SCTP did not join within %v: %s", attemptFor, why))
		}
	case attemptJoined:
		if now.Sub(a.since) >= provenAfter {
			a.wait = 0
		}
		switch {
		case !joined:
			s.cause = "SCTP was lost"
			if main != nil && main.Reason != "" {
				s.cause += ": " + main.Reason
			}
			a.set(now, attemptTrying, s.cause)
		case s.stalled(now, *main):
			err := fmt.Errorf("SCTP delivers nothing: data unacknowledged for %v, while %s lives", main.Waiting.Round(time.Millisecond), s.hysteresis.Current())
			s.giveUp(now, main.Slot, err)
			s.cause = err.Error()
			s.rest(now, err.Error())
		default:
			s.renew(now)
		}
	}
}

// expectsAddress says whether a path has only just come up, and with it the time in
// which its tunnel is made: an association without it would soon be replaced.
func (s *Steer) expectsAddress(now time.Time) bool {
	return s.opt.DialTCP != nil && slices.ContainsFunc(s.tracks, func(t *track) bool {
		return t.Up && !t.SCTP.Remote.IsValid() && now.Sub(t.upSince) < addressFor
	})
}

// rest leaves SCTP alone for a while.
func (s *Steer) rest(now time.Time, reason string) {
	a := &s.attempt
	a.wait = min(max(attemptFirst, 2*a.wait), attemptMost)
	a.set(now, attemptResting, reason)
	a.until = now.Add(a.wait)
	s.renewal = renewal{generation: s.renewal.generation}
	s.log.Warn("SCTP is left alone for a while, TCP carries", "reason", reason, "next", a.wait)
}

// stalled says whether an association gets nothing through although its path
// lives and TCP could: something drops SCTP.
func (s *Steer) stalled(now time.Time, c uplink.CarrierStats) bool {
	limit, move := max(stallLeast, 4*c.RTT), stallLeast
	if now.Sub(s.fled) < 2*stallLeast {
		limit, move = max(strandedLeast, 4*c.RTT), max(moveFor, 2*c.RTT)
	}
	t := s.track(s.hysteresis.Current())
	if s.scheme.Protocol != pathsel.SCTP || c.Waiting <= limit || now.Sub(c.Heard) <= limit || t == nil || !t.usable {
		return false
	}
	if p, ok := s.settled[c.Slot]; ok && now.Sub(p.at) <= move {
		return false // it has just been told to go another way
	}
	return s.otherWay()
}

// otherWay says whether a TCP carrier could take over.
func (s *Steer) otherWay() bool {
	return slices.ContainsFunc(s.carriers, func(c uplink.CarrierStats) bool {
		return c.Kind == pathsel.TCP && hasJoined(c)
	})
}

// renewal replaces an association that lacks an address, first made and then
// broken (F21).
type renewal struct {
	generation int       // of the association in use, from 1
	wanted     time.Time // since when it lacks one; zero if it does not
	began      time.Time // when the next one was planned; zero if it is not
	notBefore  time.Time
}

var errNoAddress = errors.New("none of its addresses exist any more")

// renew looks after the addresses of the association in use.
func (s *Steer) renew(now time.Time) {
	r := &s.renewal
	lacks, has := s.lacks(now)
	if lacks && !has {
		s.giveUp(now, s.mainSlot(), errNoAddress) // whether another is on its way or not
		return
	}
	if !r.began.IsZero() {
		next := s.carrier(slotName(pathsel.SCTP, r.generation+1, 1))
		switch {
		case next != nil && hasJoined(*next):
			s.mu.Lock()
			delete(s.assocs, s.mainSlot())
			s.mu.Unlock()
			delete(s.settled, s.mainSlot())
			*r = renewal{generation: r.generation + 1}
			s.log.Info("the association is renewed with the addresses of now", "slot", next.Slot)
		case now.Sub(r.began) > renewFor:
			*r = renewal{generation: r.generation, notBefore: now.Add(renewAgain)}
		}
		return
	}
	switch {
	case !lacks:
		r.wanted = time.Time{}
	case r.wanted.IsZero():
		if !s.readdress(now) {
			r.wanted = now
		}
	case now.Sub(r.wanted) >= renewAfter && !now.Before(r.notBefore):
		r.began = now
		s.log.Info("the association lacks an address; another one is made", "slot", s.mainSlot())
	}
}

// readdress has the association follow addresses of paths that have changed, and
// reports whether it does (RFC 5061; the addresses in tunnels stay).
func (s *Steer) readdress(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.assocs[s.mainSlot()]
	follows := false
	for _, t := range s.tracks {
		i := slices.IndexFunc(a.addresses, func(p PathAddress) bool { return p.Path == t.Name })
		if i < 0 || !t.usable || a.addresses[i] == t.SCTP || a.addresses[i].Remote != t.SCTP.Remote {
			continue
		}
		from, to := a.addresses[i].Local, t.SCTP.Local
		if err := a.Readdress(from, to); err != nil {
			s.log.Info("the association cannot follow a changed address; another one is made", "path", t.Name, "from", from, "to", to, "error", err)
			return false
		}
		s.log.Info("the association follows a changed address", "path", t.Name, "from", from, "to", to)
		a.addresses[i], follows = t.SCTP, true
	}
	return follows
}

// lacks says whether the association in use lacks the address of a path that can
// be used, and whether it has that of any.
func (s *Steer) lacks(now time.Time) (lacks, has bool) {
	s.mu.Lock()
	a := s.assocs[s.mainSlot()]
	s.mu.Unlock()
	if a == nil {
		return false, false
	}
	for _, t := range s.tracks {
		if t.usable && t.SCTP.Remote.IsValid() {
			ours := slices.Contains(a.addresses, t.SCTP)
			has = has || ours
			lacks = lacks || !ours && s.probation.Standing(now, t.Name).Passed
		}
	}
	return lacks, has
}

// giveUp abandons a slot's carrier, once.
func (s *Steer) giveUp(now time.Time, slot string, why error) {
	if now.Sub(s.gaveUp[slot]) < time.Second {
		return // the sender has not heeded it yet
	}
	s.gaveUp[slot] = now
	s.log.Warn("carrier given up", "slot", slot, "reason", why)
	s.opt.Sender.Abandon(slot, why)
}

func hasJoined(c uplink.CarrierStats) bool {
	return c.State == uplink.CarrierActive || c.State == uplink.CarrierStandby
}

// carrier returns that of a slot, nil if it is not planned.
func (s *Steer) carrier(slot string) *uplink.CarrierStats {
	for i := range s.carriers {
		if s.carriers[i].Slot == slot && s.carriers[i].State != uplink.CarrierLeaving {
			return &s.carriers[i]
		}
	}
	return nil
}
