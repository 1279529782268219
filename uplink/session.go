package uplink

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"sluice/reading"
	"sluice/uplink/wire"
)

var (
	errAckTimeout = errors.New("no acknowledgement in time: the collector cannot write, or the path is dead")
	errSilent     = errors.New("no answer to a ping: the path or the collector is dead")
	errDrained    = errors.New("the collector shuts down")
	errEpoch      = errors.New("the store was created anew")
	errSuperseded = errors.New("superseded")
	errElsewhere  = errors.New("another collector answers than on the session's other carriers: lead all addresses to one")
	errShutdown   = errors.New("shut down")
)

const (
	// queueRetry is the wait after the queue could not be read.
	queueRetry = time.Second
	// stallPart of the AckTimeout without progress, and the uplink is not said to
	// deliver any more.
	stallPart = 3
	// pongsMost bounds the Pings of a collector that wait for an answer.
	pongsMost = 8
)

// session is what outlives carriers: lanes, what is in flight, and the carriers
// that have joined. The goroutine in run owns it; everything else reaches it by
// post.
type session struct {
	*Sender
	events chan func(now time.Time)
	ended  chan struct{} // closed when run no longer takes events
	dialed chan struct{} // closed when no carrier will join any more
	wg     sync.WaitGroup

	links  []*link
	epoch  uint64 // what the lanes' sequence numbers belong to
	lanes  [reading.Lanes]lane
	window int // the collector's limits, bytes
	frame  int
	peer   uint64 // the collector's process
	pack   packer
	trying string // why there is no carrier, or what is being tried

	drainBy      time.Time // set when shutting down
	queueRetryAt time.Time // set while the queue cannot be read
}

func newSession(s *Sender) *session {
	return &session{
		Sender: s,
		events: make(chan func(time.Time), 16),
		ended:  make(chan struct{}),
		dialed: make(chan struct{}),
		pack:   packer{correct: s.opt.Correct},
		trying: "dialling " + s.opt.Dialers[0].Name,
	}
}

// post has f run by the session's goroutine. It reports false if that has ended.
func (s *session) post(f func(now time.Time)) bool {
	select {
	case s.events <- f:
		return true
	case <-s.ended:
		return false
	}
}

// try says what is done to get a carrier, for the status.
func (s *session) try(what string) bool {
	return s.post(func(time.Time) { s.trying = what })
}

// run is the session's goroutine, until ctx ended and what is in flight is
// acknowledged or too late.
func (s *session) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	stop, dialed := ctx.Done(), s.dialed
	for {
		now := time.Now()
		wake := earliest(earliest(s.expire(now), s.feed(now)), s.drainBy)
		s.publish(now)
		if stop == nil && dialed == nil && (s.flying() == 0 || !now.Before(s.drainBy)) {
			break
		}
		timer.Reset(until(now, wake))
		select {
		case <-stop:
			stop = nil
			s.drainBy = time.Now().Add(drainTimeout)
		case <-dialed:
			dialed = nil // which connect does only after ctx ended
		case <-s.opt.Queue.Changed():
			for i := range s.lanes {
				s.lanes[i].drained = false
			}
		case handle := <-s.events:
			handle(time.Now())
		case <-timer.C:
		}
	}
	s.end()
}

// end closes what is left, politely where the writer is free.
func (s *session) end() {
	now := time.Now()
	for waiting := true; waiting; { // a carrier may have joined last
		select {
		case handle := <-s.events:
			handle(now)
		default:
			waiting = false
		}
	}
	close(s.ended)
	for len(s.links) > 0 {
		l := s.links[0]
		if !l.busy {
			l.carrier.SetWriteDeadline(now.Add(drainTimeout))
			if err := l.writeOne(wire.AppendClose(nil, wire.Close{Reason: "gateway shuts down"})); err != nil {
				s.opt.Logger.Debug("close carrier", "collector", l.name, "error", err)
			}
		}
		s.leave(now, l, errShutdown)
	}
	s.publish(now)
	s.wg.Wait()
}

// join takes a carrier in.
func (s *session) join(now time.Time, l *link, w wire.Welcome) {
	if s.epoch != l.epoch {
		s.epoch = l.epoch
		s.lanes = [reading.Lanes]lane{}
	}
	s.window = int(min(w.MaxUnacked, math.MaxInt32))
	s.frame = int(min(w.MaxFrame, math.MaxInt32))
	alone := len(s.links) == 0
	if !alone && w.Instance != s.peer {
		l.carrier.Close()
		l.gone <- farewell{reason: errElsewhere}
		return
	}
	s.peer = w.Instance
	s.links = append(s.links, l)
	l.heardAt, l.sentAt = now, now
	for i := range s.lanes {
		done := s.lanes[i].resume(now, w.Lanes[i], l, alone)
		s.finished(now, reading.Lane(i), done, w.Lanes[i].Durable)
		for _, sp := range s.lanes[i].flight {
			if sp.link == l {
				l.flying++
			}
		}
	}
	l.limitUnsent()
	l.start(&s.wg, s)
	s.mu.Lock()
	s.carrier = l.carrier
	s.stats.RTT, s.stats.ClockOffset = l.rtt, l.clockOffset
	s.mu.Unlock()
}

// leave takes a carrier out; what it had in flight goes again on another.
func (s *session) leave(now time.Time, l *link, reason error) {
	i := slices.Index(s.links, l)
	if i < 0 {
		return // both of its goroutines tell of one loss
	}
	s.links = slices.Delete(s.links, i, i+1)
	l.carrier.Close()
	close(l.tx)
	var other *link
	if len(s.links) > 0 {
		other = s.links[0]
	}
	for i := range s.lanes {
		s.lanes[i].drop(l, other)
	}
	info := l.carrier.Info()
	s.mu.Lock()
	s.stats.BytesIn += info.BytesIn
	s.stats.BytesOut += info.BytesOut
	s.carrier = nil
	if other != nil {
		s.carrier = other.carrier
	}
	s.mu.Unlock()
	reason = fmt.Errorf("collector %s: %w", l.name, reason)
	s.trying = reason.Error()
	l.gone <- farewell{reason: reason, delivered: l.delivered}
}

// feed hands frames to the carriers that can take one, and returns when to look
// again.
func (s *session) feed(now time.Time) (wake time.Time) {
	if !s.queueRetryAt.IsZero() && !now.Before(s.queueRetryAt) {
		s.queueRetryAt = time.Time{}
		for i := range s.lanes {
			s.lanes[i].drained = false
		}
	}
	for _, l := range s.links {
		if l.busy {
			continue
		}
		if len(l.pongs) > 0 {
			s.write(now, l, wire.AppendPong(l.out[:0], l.pongs[0]))
			l.pongs = l.pongs[1:]
			continue
		}
		if !l.draining && s.drainBy.IsZero() {
			wake = earliest(wake, s.feedData(now, l))
		}
		if !l.busy && l.pingAt.IsZero() {
			idle := l.sentAt.Add(s.opt.Keepalive) // also while acks come: the collector listens as well
			if now.Before(idle) {
				wake = earliest(wake, idle)
				continue
			}
			l.pingAt = now
			l.pingID++
			s.write(now, l, wire.AppendPing(l.out[:0], l.pingID))
		}
	}
	return earliest(wake, s.queueRetryAt)
}

// feedData hands a free carrier the most urgent frame, if one is due.
func (s *session) feedData(now time.Time, l *link) (wake time.Time) {
	plan := schedule{flush: s.opt.Flush, frameMax: max(1, min(s.opt.MaxFrame, s.frame-2*segmentHead)), window: s.window}
	rate := l.meter.rate()
	for !l.busy {
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
	s.write(now, l, wire.AppendData(l.out[:0], data))
	sp := span{prev: data.Prev, from: from, last: data.Through, count: count, bytes: len(l.out), link: l,
		meter: l.meter.sent(now, l.flying == 0)}
	l.flying++
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
	if err != nil {
		s.leave(now, l, lost("send", err))
	}
}

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
			ln.hasReceived(r.First, r.Last)
		}
	}
	s.leaveDrained(now, l)
}

// finished is called when spans have become durable.
func (s *session) finished(now time.Time, lane reading.Lane, done []span, durable uint64) {
	readings := 0
	for _, sp := range done {
		readings += sp.count
		if sp.link != nil {
			sp.link.flying--
			sp.link.meter.acked(now, sp.bytes, sp.meter)
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
	l.rtt = now.Sub(l.pingAt)
	l.pingAt = time.Time{}
	s.mu.Lock()
	s.stats.RTT = l.rtt
	s.mu.Unlock()
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
		if len(s.opt.Dialers) == 1 {
			alive = ln.signAt
		}
		if due := alive.Add(s.opt.AckTimeout); now.Before(due) {
			wake = earliest(wake, due)
			continue
		}
		// What the others carry may only wait for this: they have time again.
		ln.progressAt, ln.signAt = now, now
		s.leave(now, ln.overdue(), errAckTimeout)
	}
	for _, l := range slices.Clone(s.links) {
		if l.pingAt.IsZero() {
			continue
		}
		if l.heardAt.After(l.pingAt) {
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

func (s *session) flying() (n int) {
	for _, l := range s.links {
		n += l.flying
	}
	return n
}

// publish shows the session's state to Stats and Delivering.
func (s *session) publish(now time.Time) {
	until := time.Duration(math.MaxInt64)
	if !slices.ContainsFunc(s.links, func(l *link) bool { return !l.draining }) {
		until = 0
	}
	stalled := "no acknowledgement comes: the path is slow or dead"
	rate := 0.0
	if len(s.links) > 0 {
		rate = s.links[0].meter.rate()
	}
	s.mu.Lock()
	for i := range s.lanes {
		ln := &s.lanes[i]
		s.stats.Lanes[i] = LaneStats{Acked: ln.acked, Sent: ln.sent, InFlight: ln.bytes}
		if len(ln.flight) > 0 {
			until = min(until, ln.progressAt.Sub(s.started)+s.opt.AckTimeout/stallPart)
			if ln.signAt.After(ln.progressAt) {
				stalled = "the collector answers, but its outputs take no readings"
			}
		}
	}
	s.stats.Rate = rate
	s.mu.Unlock()
	s.deliversUntil.Store(int64(until))
	switch {
	case len(s.links) == 0:
		s.setState(now, Connecting, s.trying)
	case until == 0:
		s.setState(now, Stalled, "the collector shuts down")
	case until <= now.Sub(s.started):
		s.setState(now, Stalled, stalled)
	default:
		s.setState(now, Delivering, "connected to "+s.links[0].name)
	}
}

// earliest is the first of two instants of which the zero one is never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// until is how long to sleep; with nothing to wake for, an hour costs nothing.
func until(now, wake time.Time) time.Duration {
	if wake.IsZero() {
		return time.Hour
	}
	return max(0, wake.Sub(now))
}
