package uplink

import (
	"math"
	"time"

	"sluice/reading"
	"sluice/uplink/wire"
)

// queueRetry is the wait after the queue could not be read.
const queueRetry = time.Second

// feed hands frames to the carriers that can take one, and returns when to look
// again.
func (s *session) feed(now time.Time) (wake time.Time) {
	if !s.queueRetryAt.IsZero() && !now.Before(s.queueRetryAt) {
		s.queueRetryAt = time.Time{}
		for i := range s.lanes {
			s.lanes[i].drained = false
		}
	}
	rank := s.carrying()
	for _, l := range s.links {
		if l.busy || l.closing {
			continue
		}
		if len(l.pongs) > 0 {
			s.write(now, l, wire.AppendPong(l.out[:0], l.pongs[0]))
			l.pongs = l.pongs[1:]
			continue
		}
		if l.rank() == rank && rank >= 0 && s.drainBy.IsZero() {
			wake = earliest(wake, s.feedData(now, l))
		}
		if !l.busy && l.pingAt.IsZero() {
			idle := l.sentAt.Add(s.opt.Keepalive) // also while acks come: the collector listens as well
			if !l.ask && now.Before(idle) {
				wake = earliest(wake, idle)
				continue
			}
			l.ask, l.pingAt = false, now
			l.pingID++
			s.write(now, l, wire.AppendPing(l.out[:0], l.pingID))
		}
	}
	return earliest(wake, s.queueRetryAt)
}

// feedData hands a free carrier the most urgent frame, if one is due.
func (s *session) feedData(now time.Time, l *link) (wake time.Time) {
	plan := schedule{flush: s.opt.Flush, frameMax: max(1, min(s.opt.MaxFrame, s.frame-2*segmentHead)), window: s.window}
	for !l.busy {
		rate := l.rate()
		var lanes [reading.Lanes]waiting
		for i := range s.lanes {
			ln := &s.lanes[i]
			s.fill(now, reading.Lane(i), plan.frameSize(rate))
			lanes[i] = waiting{again: len(ln.lost) > 0, bytes: ln.nextLen, since: ln.since, flight: ln.bytes}
		}
		d := plan.next(now, rate, lanes)
		if !d.send {
			return d.wakeAt
		}
		if d.lane != reading.Alarm && now.Before(l.holdUntil) {
			return l.holdUntil
		}
		l.pace.observe(now, l.carrier.Info())
		if wait := l.pace.wait(now); wait > 0 && d.lane != reading.Alarm {
			l.holdUntil = now.Add(wait)
			return l.holdUntil
		}
		if !s.send(now, l, d) {
			return wake
		}
	}
	return wake
}

// fill reads ahead in the queue until a frame's worth is held.
func (s *session) fill(now time.Time, lane reading.Lane, size int) {
	l := &s.lanes[lane]
	for !l.drained && l.nextLen < size {
		segments := s.read(now, lane, max(l.sent, l.nextEnd), size-l.nextLen)
		if len(segments) == 0 {
			l.drained = true
			return
		}
		l.hold(now, segments)
	}
}

// read is Queue.Next; an error is logged and tried again later.
func (s *session) read(now time.Time, lane reading.Lane, after uint64, size int) []reading.Segment {
	if !s.queueRetryAt.IsZero() {
		return nil
	}
	segments, err := s.opt.Queue.Next(lane, after, size)
	if s.opt.Queue.Epoch() != s.epoch {
		s.queueRetryAt = now // and expire ends the carriers first
		return nil
	}
	if err != nil {
		s.opt.Logger.Error("read queue", "lane", lane, "after", after, "error", err)
		s.queueRetryAt = now.Add(queueRetry)
		return nil
	}
	return segments
}

// send builds a frame and hands it to a carrier. It reports false if there was
// nothing to send after all.
func (s *session) send(now time.Time, l *link, d decision) bool {
	ln := &s.lanes[d.lane]
	again := len(ln.lost) > 0
	data := wire.Data{Lane: d.lane, Prev: ln.prev}
	from := ln.sent
	if again {
		first := ln.lost[0]
		data.Prev, from = first.prev, first.from
		segments := s.read(now, d.lane, from, d.size)
		if !s.queueRetryAt.IsZero() {
			return false
		}
		data.Segments, data.Through = s.pack.pack(segments, from, first.last, d.size)
		if len(data.Segments) == 0 {
			data.Through = first.last // removed meanwhile by the quota: the collector must not wait
		}
	} else {
		data.Segments, data.Through = s.pack.pack(ln.next, from, math.MaxUint64, d.size)
	}
	count, bytes := 0, 0
	for _, seg := range data.Segments {
		count += seg.Count
		bytes += len(seg.Data)
	}
	if bytes+segmentHead*(len(data.Segments)+1) > s.frame {
		s.opt.Logger.Error("readings do not fit the collector's frame and are given up",
			"lane", d.lane, "from", from+1, "to", data.Through, "bytes", bytes, "limit", s.frame)
		s.mu.Lock()
		s.stats.Oversize += uint64(count)
		s.mu.Unlock()
		data.Segments, count = nil, 0
	}
	frame := wire.AppendData(l.out[:0], data)
	l.pace.sent(now, len(frame))
	s.write(now, l, frame)
	sp := span{prev: data.Prev, from: from, last: data.Through, count: count, bytes: len(l.out), link: l,
		meter: l.meter.sent(now, l.flying == 0)}
	if again {
		ln.tookAgain(now, sp)
	} else {
		ln.took(now, sp)
	}
	s.mu.Lock()
	s.stats.Frames++
	if again {
		s.stats.Resent += uint64(count)
	}
	s.mu.Unlock()
	return true
}

// write hands a message to a carrier's writer.
func (s *session) write(now time.Time, l *link, msg []byte) {
	l.out, l.busy, l.sentAt = msg, true, now
	l.tx <- msg
}

// written is called when a carrier has taken a message.
func (s *session) written(now time.Time, l *link, err error) {
	l.busy = false
	switch {
	case err != nil:
		s.leave(now, l, lost("send", err))
	case l.closing:
		s.leave(now, l, errUnplanned)
	}
}
