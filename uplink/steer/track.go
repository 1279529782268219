package steer

import (
	"slices"
	"time"

	"sluice/pathsel"
	"sluice/uplink/probe"
)

const (
	// So many packets make a loss rate that Algorithm 1 is told: with fewer, a
	// single one would be worth more than the margin.
	leastPackets = 200
	leastProbes  = 60 // of an idle path, for the same reason
	lossEvery    = time.Second
	// loneAfter a path's link went down it is not waited for any more.
	loneAfter = 10 * time.Minute
)

// track is what is known of a path.
type track struct {
	Path
	upSince time.Time
	upAt    time.Time // when the link was last seen up
	since   time.Time // of usable
	usable  bool      // up, alive, and heard of since it is up
	life    pathsel.Life
	reason  string

	probes    probe.Stats // at the last step
	echoes    bool        // probes are answered: they say something
	silentAt  time.Time   // when so many probes in a row were unanswered that the path would be dead; zero if they are not
	blindAt   time.Time   // when a carrier last stood in for a probe
	suspectAt time.Time
	deadAt    time.Time
	long      bool      // its round trip is longer than SCTP likes
	leakedAt  time.Time // when it last lost so much that SCTP should not retransmit over it; zero if it is tight

	// of the carriers on it
	heard    time.Time
	waiting  time.Duration
	rtt      time.Duration
	carried  time.Time      // when it last carried data
	counts   pathsel.Counts // of data, in this step
	inFlight int
	idleAt   time.Time // since when nothing is in flight
	sent     uint64    // bytes
	received uint64

	ratio  *pathsel.Ratio
	rate   float64 // the latest of ratio, percent
	rateAt time.Time
	smooth float64 // of rate
	recent *pathsel.Recent
	queue  *pathsel.Congestion
	paced  time.Duration // what the prober was told last
}

// follow takes over the paths as they are now.
func (s *Steer) follow(now time.Time) {
	paths := s.opt.Paths()
	var tracks []*track
	var current, usable, doubted []PathAddress // the kernel dials them in order
	for _, p := range paths {
		t := s.track(p.Name)
		if t == nil {
			t = &track{Path: Path{Name: p.Name}, since: now, reason: "not heard of yet", idleAt: now,
				ratio: pathsel.NewRatio(leastPackets, lossEvery), recent: pathsel.NewRecent(leastProbes), queue: pathsel.NewCongestion()}
		}
		if p.Up && !t.Up {
			t.upSince, t.life = now, pathsel.Alive
			t.suspectAt, t.deadAt, t.silentAt, t.paced = time.Time{}, time.Time{}, time.Time{}, unpaced
		}
		if p.Prober != t.Prober {
			t.probes, t.paced = probe.Stats{}, unpaced
			if p.Prober != nil {
				t.probes = p.Prober.Stats()
			}
		}
		if p.Up {
			t.upAt = now
		}
		t.Path = p
		tracks = append(tracks, t)
		switch {
		case !p.Up || !p.SCTP.Remote.IsValid():
		case p.Name == s.hysteresis.Current() && t.usable:
			current = append(current, p.SCTP)
		case t.usable:
			usable = append(usable, p.SCTP)
		default:
			doubted = append(doubted, p.SCTP)
		}
	}
	for _, t := range s.tracks {
		if !slices.Contains(tracks, t) {
			s.log.Info("path "+t.Name+" is gone", "path", t.Name)
			s.losses.Forget(t.Name)
			s.probation.Forget(t.Name)
			s.slowness.Forget(t.Name)
			s.predictor.Forget(t.Name)
		}
	}
	s.tracks = tracks
	s.lone = s.isLone(now)
	s.mu.Lock()
	s.addresses = slices.Concat(current, usable, doubted)
	s.mu.Unlock()
}

// isLone says whether there is one path at most that SCTP could follow: then TCP
// carries as much, or more where SCTP needs a tunnel, and leaves nothing behind.
func (s *Steer) isLone(now time.Time) bool {
	if s.opt.Profile.Toggle || s.opt.DialTCP == nil {
		return false
	}
	n := 0
	for _, t := range s.tracks {
		if !t.upAt.IsZero() && now.Sub(t.upAt) < loneAfter {
			n++
		}
	}
	return n < 2
}

// track returns what is known of a path, nil if there is none of that name.
func (s *Steer) track(name string) *track {
	for _, t := range s.tracks {
		if t.Name == name {
			return t
		}
	}
	return nil
}
