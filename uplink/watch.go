package uplink

import (
	"slices"
	"time"

	"sluice/reading"
	"sluice/uplink/wire"
)

const (
	// stallPart of the AckTimeout without progress, and the uplink is not said to
	// deliver any more.
	stallPart = 3
	// stalledLeast is how long a frame stays with a carrier that does not deliver
	// it, while another could.
	stalledLeast = time.Second
	// overtakenLeast is the same once the collector has frames that were sent
	// later: a little more than packets that overtake each other.
	overtakenLeast = 50 * time.Millisecond
	overtakenBulk  = 250 * time.Millisecond
)

// expire gives up carriers that are silent, make no progress or belong to an
// earlier life of the queue, and returns when the next one would be.
func (s *session) expire(now time.Time) (wake time.Time) {
	for len(s.links) > 0 && s.opt.Queue.Epoch() != s.epoch {
		s.leave(now, s.links[0], errEpoch) // a damaged file was replaced
	}
	for i := range s.lanes {
		ln := &s.lanes[i]
		if len(ln.flight) == 0 {
			continue
		}
		if stalled := ln.progressAt.Add(s.opt.AckTimeout / stallPart); now.Before(stalled) {
			wake = earliest(wake, stalled) // for publish
			continue
		}
		// The only collector is given time while it shows signs of life; with
		// another to turn to, only what is durable counts.
		alive := ln.progressAt
		if s.onlyCollector() {
			alive = ln.signAt
		}
		if due := alive.Add(s.opt.AckTimeout); now.Before(due) {
			wake = earliest(wake, due)
			continue
		}
		// What the others carry may only wait for this: they have time again.
		ln.progressAt, ln.signAt = now, now
		s.leave(now, ln.overdue(), errAckTimeout)
		ln.doubtHeld(ln.acked)
	}
	for _, l := range slices.Clone(s.links) {
		if l.slot.leaving {
			wake = earliest(wake, s.expireLeaving(now, l))
			continue
		}
		if l.pingAt.IsZero() {
			continue
		}
		if l.heardAt.After(l.pingAt) && l.doubtAt.IsZero() {
			l.pingAt = time.Time{} // anything heard is a sign of life
			continue
		}
		due := l.pingAt.Add(s.opt.AckTimeout)
		if now.Before(due) {
			wake = earliest(wake, due)
			continue
		}
		s.leave(now, l, errSilent)
	}
	return wake
}

// expireLeaving closes a carrier that is not planned any more, when nothing is
// in flight on it or it has had its time.
func (s *session) expireLeaving(now time.Time, l *link) (wake time.Time) {
	switch {
	case !now.Before(l.leaveBy):
		s.leave(now, l, errUnplanned)
		return time.Time{}
	case l.flying == 0 && !l.busy:
		l.closing = true
		s.write(now, l, wire.AppendClose(l.out[:0], wire.Close{Reason: "the gateway goes another way"}))
	}
	return l.leaveBy
}

// onlyCollector says that there is nothing else to turn to.
func (s *session) onlyCollector() bool {
	return !slices.ContainsFunc(s.slots, func(sl *slot) bool { return len(*sl.dialers.Load()) > 1 })
}

// retake gives what one carrier does not deliver to others that do, and returns
// when it would next. That is what is late and was overtaken: the collector has
// something that was sent later on another carrier; for it cannot use what comes
// behind a gap. And what is so late that it stalls even if nothing shows it to be
// lost. To send again is cheap, for the collector drops what it has.
func (s *session) retake(now time.Time) (wake time.Time) {
	if len(s.links) < 2 || !s.drainBy.IsZero() {
		return time.Time{}
	}
	rank := s.carrying()
	for _, l := range s.links {
		oldest := l.oldest()
		if oldest == nil {
			continue
		}
		relief, newest := false, time.Time{}
		for _, o := range s.links {
			if o == l {
				continue
			}
			relief = relief || !o.busy && o.rank() == rank && o.doubtAt.IsZero()
			if o.newest.After(newest) {
				newest = o.newest
			}
		}
		if !relief {
			continue // feed and written look again
		}
		due := func(lane reading.Lane, sp *span) time.Time {
			since := sp.meter.sentAt
			if l.progressAt.After(since) {
				since = l.progressAt
			}
			return since.Add(patience(lane, l.usual(), l.rtt.most(), newest.After(sp.meter.sentAt)))
		}
		if first := due(reading.Alarm, oldest); now.Before(first) {
			wake = earliest(wake, first)
			continue
		}
		taken, since := 0, oldest.meter.sentAt
		for i := range s.lanes {
			taken += s.lanes[i].takeBack(l, func(sp *span) bool {
				at := due(reading.Lane(i), sp)
				if now.Before(at) {
					wake = earliest(wake, at)
				}
				return !now.Before(at)
			})
		}
		if taken > 0 {
			l.doubt(now, since)
			rank = s.carrying()
		}
	}
	return wake
}

// usual is how long a frame takes to be acknowledged if nothing of it is lost, as
// the session saw it or, where that waited for what was lost, the transport.
func (l *link) usual() time.Duration {
	usual := l.rtt.usual()
	if path := l.pace.usual(); path > 0 {
		usual = min(usual, path)
	}
	return usual
}

// patience is how long a frame may be without acknowledgement, or any before it
// on its carrier, until it goes again on another. Usual and most are the link's
// round trips.
func patience(lane reading.Lane, usual, most time.Duration, overtaken bool) time.Duration {
	stalled := max(stalledLeast, most)
	switch {
	case !overtaken:
		return stalled
	case lane == reading.Backfill: // nobody waits for it, so rather late than twice
		return min(stalled, overtakenBulk+2*usual)
	}
	return min(stalled, max(overtakenLeast, usual))
}
