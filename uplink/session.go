package uplink

import (
	"cmp"
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
	errUnplanned  = errors.New("not planned any more")
	errShutdown   = errors.New("shut down")
)

// session is what outlives carriers: lanes, what is in flight, and the carriers
// that have joined. The goroutine in run owns it; everything else reaches it by
// post.
type session struct {
	*Sender
	events   chan func(now time.Time)
	ended    chan struct{} // closed when run no longer takes events
	dialled  chan struct{} // closed when no carrier will join any more
	dialling sync.WaitGroup
	wg       sync.WaitGroup // of the carriers

	slots  []*slot // as planned, then those that leave
	links  []*link // in the order of slots
	epoch  uint64  // what the lanes' sequence numbers belong to
	lanes  [reading.Lanes]lane
	window int // the collector's limits, bytes
	frame  int
	peer   uint64 // the collector's process
	pack   packer

	drainBy      time.Time // set when shutting down
	queueRetryAt time.Time // set while the queue cannot be read
}

func newSession(s *Sender) *session {
	return &session{
		Sender:  s,
		events:  make(chan func(time.Time), 16),
		ended:   make(chan struct{}),
		dialled: make(chan struct{}),
		pack:    packer{correct: s.opt.Correct},
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

// run is the session's goroutine, until ctx ended and what is in flight is
// acknowledged or too late.
func (s *session) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	stop, ordered, dialled := ctx.Done(), s.ordered, s.dialled
	for {
		now := time.Now()
		wake := earliest(s.expire(now), s.retake(now)) // before feed: what they find goes again at once
		wake = earliest(wake, s.feed(now))
		if now.Before(s.drainBy) {
			wake = earliest(wake, s.drainBy)
		}
		s.publish(now)
		if stop == nil && dialled == nil && (s.flying() == 0 || !now.Before(s.drainBy)) {
			break
		}
		timer.Reset(until(now, wake))
		select {
		case <-stop:
			stop, ordered = nil, nil
			s.drainBy = time.Now().Add(drainTimeout)
			go func() {
				defer close(s.dialled)
				s.dialling.Wait()
			}()
		case <-dialled:
			dialled = nil
		case <-ordered:
			s.obey(ctx, time.Now())
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
	var polite sync.WaitGroup
	for _, l := range s.links {
		if l.busy {
			continue
		}
		polite.Go(func() {
			if err := l.writeOne(wire.AppendClose(nil, wire.Close{Reason: "gateway shuts down"}), drainTimeout); err != nil {
				s.opt.Logger.Debug("close carrier", "collector", l.name, "error", err)
			}
		})
	}
	polite.Wait()
	for len(s.links) > 0 {
		s.leave(now, s.links[0], errShutdown)
	}
	s.publish(now)
	s.wg.Wait()
}

// obey heeds Plan, Abandon and Ask.
func (s *session) obey(ctx context.Context, now time.Time) {
	s.mu.Lock()
	plan, abandoned, asked := s.plan, s.abandoned, s.asked
	s.plan, s.abandoned, s.asked = nil, make(map[string]error), nil
	s.mu.Unlock()
	if plan != nil {
		s.replan(ctx, now, plan)
	}
	for _, l := range slices.Clone(s.links) {
		if why, ok := abandoned[l.slot.name]; ok {
			s.leave(now, l, why)
		} else if slices.Contains(asked, l.slot.name) {
			l.ask = true
		}
	}
}

// replan makes the slots those of a plan.
func (s *session) replan(ctx context.Context, now time.Time, plan []Slot) {
	old := slices.Clone(s.slots)
	s.slots = s.slots[:0]
	for _, p := range plan {
		i := slices.IndexFunc(old, func(sl *slot) bool { return sl.name == p.Name && (sl.link == nil || !sl.link.closing) })
		if i < 0 {
			s.slots = append(s.slots, s.open(ctx, now, p))
			continue
		}
		sl := old[i]
		old = slices.Delete(old, i, i+1)
		sl.take(p)
		if sl.leaving {
			sl.leaving, sl.link.leaveBy = false, time.Time{}
		}
		s.slots = append(s.slots, sl)
	}
	for _, sl := range old {
		if sl.link == nil {
			sl.cancel()
			continue
		}
		if !sl.leaving {
			sl.leaving, sl.link.leaveBy = true, now.Add(leaveTimeout)
		}
		s.slots = append(s.slots, sl)
	}
	s.sortLinks()
}

// open begins to fill a slot.
func (s *session) open(ctx context.Context, now time.Time, p Slot) *slot {
	sl := &slot{name: p.Name}
	sl.take(p)
	sl.dialler = p.Dialers[0]
	sl.set(now, CarrierDialling, "dialling "+sl.dialler.Name)
	ctx, sl.cancel = context.WithCancel(ctx)
	s.dialling.Go(func() {
		defer sl.cancel()
		s.connect(ctx, sl)
	})
	return sl
}

func (s *session) sortLinks() {
	slices.SortStableFunc(s.links, func(a, b *link) int {
		return cmp.Compare(slices.Index(s.slots, a.slot), slices.Index(s.slots, b.slot))
	})
}

// join takes a carrier in, or says why not.
func (s *session) join(now time.Time, l *link, w wire.Welcome) error {
	switch {
	case !slices.Contains(s.slots, l.slot):
		return errUnplanned
	case l.epoch != s.opt.Queue.Epoch():
		return errEpoch
	}
	for len(s.links) > 0 && s.epoch != l.epoch {
		s.leave(now, s.links[0], errEpoch)
	}
	alone := len(s.links) == 0
	if !alone && w.Instance != s.peer {
		for _, o := range s.links {
			o.ask = true // they may be of a collector that is no more
		}
		return errElsewhere
	}
	if s.epoch != l.epoch {
		s.epoch = l.epoch
		s.lanes = [reading.Lanes]lane{}
	}
	s.window = int(min(w.MaxUnacked, math.MaxInt32))
	s.frame = int(min(w.MaxFrame, math.MaxInt32))
	s.peer = w.Instance
	s.links = append(s.links, l)
	l.slot.link = l
	s.sortLinks()
	l.heardAt, l.sentAt = now, now
	for i := range s.lanes {
		s.finished(now, reading.Lane(i), s.lanes[i].resume(now, w.Lanes[i], l, alone), w.Lanes[i].Durable)
	}
	l.limitUnsent()
	l.start(&s.wg, s)
	return nil
}

// leave takes a carrier out; what it had in flight goes again on another.
func (s *session) leave(now time.Time, l *link, reason error) {
	i := slices.Index(s.links, l)
	if i < 0 {
		return // both of its goroutines tell of one loss
	}
	s.links = slices.Delete(s.links, i, i+1)
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
	s.carriers = slices.DeleteFunc(s.carriers, func(v carrierView) bool { return v.carrier == l.carrier })
	s.mu.Unlock()
	close(l.tx)
	s.wg.Go(func() { l.carrier.Close() }) // which no other carrier has to wait for
	reason = fmt.Errorf("collector %s: %w", l.name, reason)
	sl := l.slot
	sl.link = nil
	sl.set(now, CarrierWaiting, reason.Error())
	if sl.leaving {
		sl.cancel()
		s.slots = slices.DeleteFunc(s.slots, func(o *slot) bool { return o == sl })
	}
	l.gone <- farewell{reason: reason, delivered: l.delivered}
}

// rank says how well a carrier may take readings: the lower the better, and those
// of the lowest rank share what there is. A negative one takes none.
func (l *link) rank() int {
	switch {
	case l.draining, l.closing, l.slot.leaving:
		return -1
	case !l.slot.standby && l.doubtAt.IsZero():
		return 0
	case !l.slot.standby:
		return 1
	case l.doubtAt.IsZero():
		return 2
	}
	return 3
}

// carrying is the rank of the carriers that take readings, negative without any.
func (s *session) carrying() int {
	best := -1
	for _, l := range s.links {
		if r := l.rank(); r >= 0 && (best < 0 || r < best) {
			best = r
		}
	}
	return best
}

func (s *session) flying() (n int) {
	for _, l := range s.links {
		n += l.flying
	}
	return n
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
