package steer

import (
	"slices"
	"time"

	"sluice/pathsel"
	"sluice/uplink"
)

const (
	// fullLeast bytes in flight at every step, and there is more to send than the
	// path takes; a few small frames are not.
	fullLeast = 8 << 10
	// fullFor is how long it must be so for one measurement of the rate.
	fullFor = 2 * time.Second
	// freshProbe is how long an answer tells of the queue of now.
	freshProbe = 300 * time.Millisecond
	// longTrip is a round trip for which TCP carries: at 8 Mbit/s SCTP would need 20
	// seconds after a loss, at 500 ms 80, to fill the path again. TCP keeps one that
	// was longer until it is shorter than notLong.
	longTrip = 250 * time.Millisecond
	notLong  = 200 * time.Millisecond
	// leaky is the loss in percent of another path for which TCP carries: the kernel
	// retransmits over the other paths, and what is lost again there holds up all
	// that follows for a timeout. A path that leaked counts as such for tightFor after
	// it last lost more than tight: few probes go over it, and it may come and go.
	// One that was dead for less than briefly leaks, too, unless it only drops probes.
	leaky    = 15.0
	tight    = 5.0
	tightFor = 5 * time.Minute
	briefly  = 3 * time.Second
	// turnFor after a change of primary, chunks are sent again that were lost on
	// the path before.
	turnFor = time.Second
)

// measure reads the carriers, and books what they sent, lost and heard since the
// last step to paths: what a TCP carrier did to its path, what an association did
// to the path that was its primary ([MS] 4.3; the kernel counts no finer).
func (s *Steer) measure(now time.Time) {
	s.carriers = s.opt.Sender.Stats().Carriers
	s.moving, s.counts = false, pathsel.Counts{}
	for _, t := range s.tracks {
		t.waiting, t.rtt, t.inFlight, t.counts = 0, 0, 0, pathsel.Counts{}
	}
	current, flying, out := s.hysteresis.Current(), 0, uint64(0)
	before := make(map[string]uplink.Info, len(s.carriers))
	for _, c := range s.carriers {
		before[c.Slot] = c.Info
		t := s.track(s.carrierPath(c))
		if t == nil {
			continue
		}
		last := s.before[c.Slot]
		if c.Info.Sent < last.Sent || c.Info.BytesOut < last.BytesOut || c.Info.BytesIn < last.BytesIn {
			last = uplink.Info{} // another carrier than before
		}
		resent := less(c.Info.Resent, last.Resent)
		counts := pathsel.Counts{Sent: c.Info.Sent - last.Sent + resent, Lost: resent}
		switch {
		case c.Kind != pathsel.SCTP:
		case now.Sub(s.turned) < turnFor:
			counts.Lost = 0 // what the path before has lost is sent again over this one
		case !primaryCarries(c.Info):
			counts.Sent = counts.Lost // the rest went over another
		}
		t.counts = pathsel.Counts{Sent: t.counts.Sent + counts.Sent, Lost: t.counts.Lost + counts.Lost}
		t.sent += c.Info.BytesOut - last.BytesOut
		t.received += c.Info.BytesIn - last.BytesIn
		t.inFlight += c.InFlight
		t.waiting = max(t.waiting, c.Waiting)
		if believable(c, t) && c.Heard.After(t.heard) {
			t.heard = c.Heard
		}
		rtt := c.Info.RTT
		if rtt == 0 {
			rtt = c.RTT
		}
		// Those that carry come first. What a standby knows may be of a queue that is
		// gone.
		if t.rtt == 0 || c.State == uplink.CarrierActive {
			t.rtt = max(t.rtt, rtt)
		}
		if c.Kind == pathsel.TCP && c.Info.Congestion != "" {
			s.variants[pathsel.TCP] = c.Info.Congestion
		}
		s.moving = s.moving || c.InFlight > 0
		if t.Name == current {
			flying += c.InFlight
			out += c.Info.BytesOut - last.BytesOut
		}
	}
	s.before = before
	for _, t := range s.tracks {
		s.book(now, t)
	}
	if t := s.track(current); t != nil {
		s.counts = t.counts
		t.queue.Observe(now, s.queueing(now, t), t.counts)
		s.measureFit(now, t)
		s.measureLoad(now, t, flying, out)
	}
}

// measureFit sees whether SCTP is the wrong protocol for the current path t: its
// window, which grows by a packet each round trip, would take minutes to fill it, or
// its retransmissions would go over a path that loses much.
func (s *Steer) measureFit(now time.Time, t *track) {
	if s.opt.Profile.Toggle || s.opt.DialTCP == nil {
		return
	}
	unfit := ""
	switch shortest := t.queue.Shortest(now); {
	case shortest >= longTrip:
		t.long = true
	case shortest < notLong:
		t.long = false
	}
	if t.long {
		unfit = t.Name + " is long, and TCP fills such a path sooner than SCTP"
	}
	for _, o := range s.tracks {
		loss := s.losses.Get(now, o.Name)
		told := o.usable && (o.echoes || now.Sub(o.carried) < tightFor) // there is something to judge by
		switch leaks := !o.leakedAt.IsZero(); {
		case told && loss.Score() >= leaky && loss.Score() <= 100,
			o.usable && o.echoes && !o.deadAt.IsZero() && o.since.Sub(o.deadAt) < briefly && now.Sub(o.since) < briefly,
			leaks && told && loss.Last >= tight:
			o.leakedAt = now
		case leaks && now.Sub(o.leakedAt) >= tightFor:
			o.leakedAt = time.Time{}
		}
		if o != t && !o.leakedAt.IsZero() {
			unfit = "SCTP would retransmit over " + o.Name + ", which loses much; TCP does not"
		}
	}
	if (unfit == "") != (s.unfit == "") && s.scheme.Protocol == pathsel.SCTP && s.attempt.state == attemptJoined {
		why := unfit
		if unfit == "" {
			why = "SCTP does as well and follows the paths by itself"
		}
		if s.cause != "" {
			why = s.cause + "; " + why
		}
		s.cause = why
	}
	s.unfit = unfit
}

// queueing is the round trip that shows a queue, 0 if it is not known. SCTP's own
// does not: under loss the kernel measures it rarely, and what it smooths is old.
func (s *Steer) queueing(now time.Time, t *track) time.Duration {
	if s.effective() != pathsel.SCTP || !t.echoes {
		return t.rtt
	}
	if now.Sub(t.probes.Last) > freshProbe {
		return 0
	}
	return t.probes.Latest // smoothed, it would tell of a queue when that is gone
}

// believable says whether what a carrier heard was heard over its path. What
// comes in on an association may have come by any, and it stays alive when its
// primary dies: it keeps a path alive that has not been doubted, and brings none
// to life.
func believable(c uplink.CarrierStats, t *track) bool {
	if c.Kind != pathsel.SCTP {
		return true
	}
	if !primaryCarries(c.Info) {
		return false
	}
	return t.usable && (!t.echoes || t.probes.Unanswered < 3)
}

// primaryCarries says whether an association sends over its primary path: while
// that is in doubt it sends over another.
func primaryCarries(info uplink.Info) bool {
	return !slices.ContainsFunc(info.Paths, func(p uplink.PathInfo) bool { return p.Primary && p.State != "active" })
}

// less is a-b, or 0 if that is negative.
func less(a, b uint64) uint64 { return max(a, b) - b }

// book turns counts into the loss rate of a path. Data counts for more than
// probes: these do only while a path carries nothing.
func (s *Steer) book(now time.Time, t *track) {
	if t.inFlight > 0 {
		t.idleAt = now
	}
	if t.counts.Sent > 0 {
		t.carried = now
		if percent, ok := t.ratio.Add(now, t.counts); ok {
			if s.opt.Profile.Continual {
				// Looking all the time, one would see chance: a rate counts once
				// the next confirms it. When Method acts, decide does not wait.
				// What the queue loses that the load itself fills is no fault of
				// the path's.
				if congested, _ := s.congested(now, t); !congested || !t.queue.Known(now) {
					s.losses.Record(now, t.Name, min(percent, t.rate))
				}
			}
			t.rate, t.rateAt = percent, now
			t.smooth += (percent - t.smooth) / 4
		}
	}
	if t.Prober == nil {
		return
	}
	p := t.Prober.Stats()
	probes := pathsel.Counts{Sent: p.Sent - min(p.Sent, t.probes.Sent), Lost: less(p.Lost, t.probes.Lost)}
	answers := int(less(p.Answered, t.probes.Answered))
	t.probes = p
	if p.Last.After(t.upSince) && (t.silentAt.IsZero() || p.Last.After(t.silentAt)) {
		if !t.echoes {
			t.recent = pathsel.NewRecent(leastProbes) // what nothing came back of was not loss
		}
		t.echoes = true
	}
	percent := t.recent.Add(probes)
	if t.usable && t.echoes && answers > 0 && now.Sub(t.carried) > 10*lossEvery {
		s.losses.Record(now, t.Name, percent)
	}
	if answers > 0 && p.Unanswered == 0 && now.Sub(t.idleAt) > lossEvery {
		s.slowness.Light(now, t.Name, p.RTT)
	}
	switch {
	case p.Unanswered > 0:
		s.probation.Missed(t.Name)
	default:
		s.probation.Good(now, t.Name, answers)
	}
}

// load measures what the current path delivers while it is full.
type load struct {
	way   way
	since time.Time // zero while it is not full
	bytes uint64
	rate  float64 // bytes a second, of the last measurement; 0 if there is none
}

func (s *Steer) measureLoad(now time.Time, t *track, flying int, out uint64) {
	w := way{s.effective(), t.Name, s.effectiveScheme().Carriers}
	full := flying >= fullLeast && t.life == pathsel.Alive
	if !full || w != s.full.way || s.full.since.IsZero() {
		s.full = load{way: w}
		if full {
			s.full.since = now
		}
		return
	}
	s.full.bytes += out
	took := now.Sub(s.full.since)
	if took < fullFor {
		return
	}
	// Bytes on the socket: frames shrink more or less on their way there.
	rate := float64(s.full.bytes) / took.Seconds()
	s.full.since, s.full.bytes, s.full.rate = now, 0, rate
	s.slowness.Full(now, t.Name, rate)
	s.predictor.Learn(now, t.Name, s.effectiveScheme(), t.smooth, rate)
}
