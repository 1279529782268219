package steer

import (
	"fmt"
	"slices"
	"time"

	"sluice/pathsel"
)

// switchesKept is how many switches the status remembers.
const switchesKept = 100

// Snapshot is the steering at one instant, for the status.
type Snapshot struct {
	Paths    []PathStatus
	Switches []Switch // the latest hundred, oldest first
	Protocol string   // that carries: "sctp", "tcp"; empty before the first step
	Underlay string   // what it goes over: "tunnel" or "bare"
	Carriers int      // how many share the data
	Reason   string   // why it is so, in words
	Since    time.Time
	NextTry  time.Time // of the better protocol; zero if there is none to try
}

// PathStatus is one path at one instant.
type PathStatus struct {
	Name    string
	Up      bool // the link is
	Usable  bool // and the far end is heard of through it
	Primary bool // chosen
	Metered bool
	Reason  string // why it is usable or not
	// LossLast and LossMax are the latest loss rate and the largest of the window,
	// in percent, 101 for a path that cannot be used; Score is what they and
	// slowness come to, the smaller the better.
	LossLast, LossMax, Score float64
	SRTT                     time.Duration
	SentBytes, RecvBytes     uint64
	// Standing is how far a path that failed has proved itself since, such as
	// "recovering 3/5"; empty if it has.
	Standing string
	Since    time.Time // of Usable
}

// Switch is one change of what carries the data.
type Switch struct {
	At                 time.Time
	From, To           string // "sctp wlan0", "tcp wwan0, 4 carriers"
	FromScore, ToScore float64
	Reason             string
}

// Snapshot returns the steering as of the last step. It may be called at any
// time.
func (s *Steer) Snapshot() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	snap := s.snapshot
	snap.Paths = slices.Clone(snap.Paths)
	snap.Switches = slices.Clone(s.switches)
	return snap
}

// way is what carries.
type way struct {
	protocol, path string
	carriers       int
}

// String is for people: "sctp wlan0".
func (w way) String() string {
	if w.carriers > 1 {
		return fmt.Sprintf("%s %s, %d carriers", w.protocol, w.path, w.carriers)
	}
	return w.protocol + " " + w.path
}

// publish notes a change of way, and what the status shows.
func (s *Steer) publish(now time.Time) {
	paths := s.candidates(now)
	var changed *Switch
	if w := (way{s.effective(), s.hysteresis.Current(), s.effectiveScheme().Carriers}); w != s.way && w.path != "" {
		changed = &Switch{At: now, From: s.way.String(), To: w.String(), FromScore: score(paths, s.way.path), ToScore: score(paths, w.path), Reason: s.cause}
		// TCP, which is there sooner, is only the beginning of SCTP.
		begins := s.way.path == "" || !s.begun && w == (way{pathsel.SCTP, s.way.path, 1})
		s.begun = s.way.path != ""
		if begins {
			s.log.Info("first way", "to", changed.To, "reason", s.cause)
			changed = nil
		} else {
			s.log.Warn("switch", "from", changed.From, "to", changed.To, "from_score", changed.FromScore, "to_score", changed.ToScore, "reason", changed.Reason)
		}
		s.way, s.since, s.reason, s.cause = w, now, s.cause, ""
	}
	snap := Snapshot{Protocol: s.effective(), Underlay: "bare", Carriers: s.way.carriers, Reason: s.reason, Since: s.since}
	switch {
	case snap.Protocol == pathsel.SCTP:
		snap.Underlay = s.opt.Underlay
	case s.unfit != "" && s.attempt.state == attemptJoined:
		snap.Reason = s.unfit
	case s.scheme.Protocol == pathsel.SCTP && s.attempt.reason != "":
		snap.Reason = s.attempt.reason
	case s.opt.DialSCTP == nil:
		snap.Reason = s.opt.NoSCTP
	}
	if s.attempt.state == attemptResting {
		snap.NextTry = s.attempt.until
	}
	for i, t := range s.tracks {
		p := PathStatus{
			Name: t.Name, Up: t.Up, Usable: t.usable, Primary: t.Name == s.hysteresis.Current(), Metered: t.Metered, Reason: t.reason,
			LossLast: paths[i].Loss.Last, LossMax: paths[i].Loss.Max, Score: paths[i].Score(),
			SRTT: t.probes.RTT, SentBytes: t.sent, RecvBytes: t.received,
			Since: t.since,
		}
		if standing := s.probation.Standing(now, t.Name); !standing.Passed {
			p.Standing = standing.String()
		}
		if p.SRTT == 0 {
			p.SRTT = t.rtt
		}
		snap.Paths = append(snap.Paths, p)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snapshot = snap
	if changed != nil {
		s.switches = append(s.switches, *changed)
		s.switches = s.switches[max(0, len(s.switches)-switchesKept):]
	}
}

func score(paths []pathsel.Path, name string) float64 {
	for _, p := range paths {
		if p.Name == name {
			return p.Score()
		}
	}
	return pathsel.Unreachable
}
