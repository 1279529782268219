package uplink

import (
	"cmp"
	"slices"
	"time"

	"sluice/reading"
	"sluice/uplink/wire"
)

// span is one frame in flight: the sequence numbers after from, up to and with
// last. Its readings are in the queue, not here.
type span struct {
	prev  uint64 // what the frame said precedes it
	from  uint64
	last  uint64
	count int // readings
	bytes int
	link  *link // nil when it is no longer in flight
	meter sample
	held  bool // the collector said that it has it, not durable yet
	again bool // a copy on a living carrier may still arrive: how long this one takes means nothing
}

// lane is the state of one lane of a session. The session's goroutine owns it.
type lane struct {
	acked uint64 // durable at the collector and removed from the queue
	sent  uint64 // sent at least once
	prev  uint64 // what the next new frame says precedes it; sent, but after a
	// change to a collector that has less than was acknowledged, what that has

	flight     []*span   // ascending
	progressAt time.Time // when something last became durable, or the first of flight was sent
	signAt     time.Time // when the collector last said anything of the lane; at least progressAt
	lost       []span    // ascending; sent on a carrier that ended or does not deliver
	bytes      int       // of flight

	next    []reading.Segment // read from the queue, to be sent; the first may begin before sent
	nextEnd uint64            // the last sequence number read
	nextLen int               // bytes
	since   time.Time         // when the first of next was read
	drained bool              // the queue had no more, until it changes
}

// seed starts the lane from what the collector says it has.
func (l *lane) seed(durable uint64) {
	l.acked = max(l.acked, durable)
	if durable > l.sent {
		l.sent, l.prev = durable, durable
		l.next, l.nextLen, l.nextEnd = nil, 0, durable
		l.drained = false
	}
}

// hold adds segments that were read from the queue.
func (l *lane) hold(now time.Time, segments []reading.Segment) {
	if len(l.next) == 0 {
		l.since = now
	}
	for _, s := range segments {
		l.nextLen += len(s.Data)
		l.nextEnd = s.Last()
	}
	l.next = append(l.next, segments...)
}

// took notes that a new frame up to last was handed to a carrier.
func (l *lane) took(now time.Time, sp span) {
	i := 0
	for i < len(l.next) && l.next[i].Last() <= sp.last {
		l.nextLen -= len(l.next[i].Data)
		i++
	}
	l.next = slices.Delete(l.next, 0, i)
	l.since = now
	l.sent, l.prev = sp.last, sp.last
	l.fly(now, sp)
}

// tookAgain notes that the first lost span was handed over up to sp.last.
func (l *lane) tookAgain(now time.Time, sp span) {
	sp.again = l.lost[0].again
	if first := &l.lost[0]; sp.last < first.last {
		first.prev, first.from = sp.last, sp.last
		first.count = max(0, first.count-sp.count)
	} else {
		l.lost = slices.Delete(l.lost, 0, 1)
	}
	l.fly(now, sp)
}

func (l *lane) fly(now time.Time, sp span) {
	if len(l.flight) == 0 {
		l.progressAt, l.signAt = now, now
	}
	i, _ := slices.BinarySearchFunc(l.flight, sp.from, func(s *span, from uint64) int { return cmp.Compare(s.from, from) })
	l.flight = slices.Insert(l.flight, i, &sp)
	l.bytes += sp.bytes
	sp.link.carry(&sp)
}

// ack notes that everything up to durable is safe and returns the spans that
// thereby ended.
func (l *lane) ack(durable uint64) []*span {
	if durable <= l.acked {
		return nil
	}
	l.acked = durable
	n := 0
	for n < len(l.flight) && l.flight[n].last <= durable {
		l.bytes -= l.flight[n].bytes
		n++
	}
	done := slices.Clone(l.flight[:n])
	l.flight = slices.Delete(l.flight, 0, n)
	n = 0
	for n < len(l.lost) && l.lost[n].last <= durable {
		n++
	}
	for _, sp := range l.lost[:n] {
		done = append(done, &sp)
	}
	l.lost = slices.Delete(l.lost, 0, n)
	if len(l.lost) > 0 && l.lost[0].from < durable {
		l.lost[0].prev, l.lost[0].from = durable, durable
	}
	return done
}

// hasReceived marks spans that the collector holds in memory: they need not go
// again while the session lives. It returns those that it did not know of.
func (l *lane) hasReceived(first, last uint64) (news []*span) {
	for _, s := range l.flight {
		if !s.held && s.from+1 >= first && s.last <= last {
			s.held = true
			news = append(news, s)
		}
	}
	return news
}

// doubtHeld takes back what hasReceived said of the numbers after upto.
func (l *lane) doubtHeld(upto uint64) {
	for _, s := range l.flight {
		if s.held && s.last > upto {
			s.held = false
			s.link.track(s)
		}
	}
}

// overdue is the carrier of the first span in flight that the collector has not,
// or if it has all, of the first. There must be one.
func (l *lane) overdue() *link {
	for _, s := range l.flight {
		if !s.held {
			return s.link
		}
	}
	return l.flight[0].link
}

// drop takes the spans of a carrier that ended out of flight. If others carry
// the session on, what the collector holds stays with one of them.
func (l *lane) drop(gone, other *link) {
	l.flight = slices.DeleteFunc(l.flight, func(s *span) bool {
		if s.link != gone {
			return false
		}
		gone.release(s)
		if s.held && other != nil {
			other.carry(s)
			return false
		}
		l.lose(s)
		return true
	})
	l.join()
}

// takeBack takes those spans of a living carrier out of flight that are due, to
// go again on another, and returns how many.
func (l *lane) takeBack(from *link, due func(*span) bool) (n int) {
	l.flight = slices.DeleteFunc(l.flight, func(s *span) bool {
		if s.link != from || s.held || !due(s) {
			return false
		}
		from.release(s)
		s.again = true
		l.lose(s)
		n++
		return true
	})
	l.join()
	return n
}

// lose notes a span that goes again.
func (l *lane) lose(s *span) {
	l.bytes -= s.bytes
	s.held = false
	l.lost = append(l.lost, *s)
}

// join sorts the lost spans and makes one of neighbours.
func (l *lane) join() {
	slices.SortFunc(l.lost, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	n := 0
	for _, s := range l.lost {
		if n > 0 && l.lost[n-1].last >= s.from {
			l.lost[n-1].last = max(l.lost[n-1].last, s.last)
			l.lost[n-1].count += s.count
			l.lost[n-1].bytes += s.bytes
			l.lost[n-1].again = l.lost[n-1].again || s.again
			continue
		}
		l.lost[n] = s
		n++
	}
	l.lost = l.lost[:n]
}

// resume brings the lane in line with what a collector says it has, at the
// moment a carrier joins; alone says that it is the only one. What the collector
// has received but not made durable is in flight again, with the carrier.
func (l *lane) resume(now time.Time, r wire.Resume, with *link, alone bool) []*span {
	done := l.ack(r.Durable)
	l.seed(r.Durable)
	if !alone {
		// While all of the session's carriers were broken, the collector forgot
		// what came out of order; this end may not have noticed that they were.
		l.doubtHeld(r.Received)
		return done
	}
	if r.Durable < l.acked {
		// Another collector, which never saw what an earlier one made durable:
		// that is gone from here and will not come.
		if len(l.lost) > 0 {
			l.lost[0].prev = min(l.lost[0].prev, r.Durable)
		} else {
			l.prev = min(l.prev, r.Durable)
		}
	}
	for len(l.lost) > 0 && l.lost[0].from < r.Received {
		s := &l.lost[0]
		part := *s
		part.link, part.held = with, true
		if s.last <= r.Received {
			l.lost = slices.Delete(l.lost, 0, 1)
			l.fly(now, part)
			continue
		}
		part.last = r.Received
		s.prev, s.from, s.bytes, s.count = r.Received, r.Received, 0, 0 // the part in flight stands for both
		l.fly(now, part)
	}
	return done
}
