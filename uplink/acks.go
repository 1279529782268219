package uplink

import (
	"slices"
	"time"

	"sluice/reading"
	"sluice/uplink/wire"
)

// pongsMost bounds the Pings of a collector that wait for an answer.
const pongsMost = 8

// acked is called for every Ack.
func (s *session) acked(now time.Time, l *link, ack wire.Ack) {
	if !slices.Contains(s.links, l) {
		return // it may be of an earlier epoch, and the next Welcome tells
	}
	l.heardAt = now
	for _, a := range ack.Lanes {
		ln := &s.lanes[a.Lane]
		ln.signAt = now
		if a.Durable > ln.acked {
			ln.progressAt = now
			l.delivered = true
			s.finished(now, a.Lane, ln.ack(a.Durable), a.Durable)
			ln.seed(a.Durable) // an earlier process of this gateway may have sent more
			l.limitUnsent()
		}
		for _, r := range a.Received {
			for _, sp := range ln.hasReceived(r.First, r.Last) {
				sp.link.received(now, sp)
			}
		}
	}
	for _, o := range s.links {
		o.sample(now)
	}
	s.leaveDrained(now, l)
}

// finished is called when spans have become durable.
func (s *session) finished(now time.Time, lane reading.Lane, done []*span, durable uint64) {
	readings := 0
	for _, sp := range done {
		readings += sp.count
		if l := sp.link; l != nil {
			if !sp.held {
				l.received(now, sp)
			}
			l.slot.delivered += uint64(sp.bytes)
			l.release(sp)
		}
	}
	if durable == 0 || s.opt.Queue.Epoch() != s.epoch {
		return
	}
	s.opt.Queue.Ack(lane, durable)
	s.mu.Lock()
	s.stats.Readings += uint64(readings)
	s.stats.LastAck = now
	s.mu.Unlock()
}

func (s *session) pinged(now time.Time, l *link, id uint64) {
	l.heardAt = now
	if len(l.pongs) < pongsMost {
		l.pongs = append(l.pongs, id)
	}
}

func (s *session) ponged(now time.Time, l *link, id uint64) {
	l.heardAt = now
	if id != l.pingID || l.pingAt.IsZero() {
		return
	}
	l.ping = now.Sub(l.pingAt)
	l.rtt.add(l.ping)
	if l.pingAt.Before(l.doubtAt) {
		l.ask = true // it was sent before what is in doubt
	} else {
		l.doubtAt = time.Time{}
	}
	l.pingAt = time.Time{}
}

// drained is called when the collector wants no more on a carrier.
func (s *session) drained(now time.Time, l *link) {
	l.heardAt = now
	l.draining = true
	s.leaveDrained(now, l)
}

// leaveDrained lets a carrier go once everything on it is acknowledged.
func (s *session) leaveDrained(now time.Time, l *link) {
	if l.draining && l.flying == 0 {
		s.leave(now, l, errDrained)
	}
}
