package collector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"sluice/reading"
	"sluice/uplink/wire"
)

var (
	errWindow  = errors.New("far more unacknowledged bytes than the welcome allowed")
	errReorder = errors.New("no memory to hold readings that came out of order")
)

// windowSlack is how many times the window a session may fill: what is sent again
// after a carrier was lost is here twice for a while.
const windowSlack = 2

// heldMost bounds the frames of a stream that wait for an earlier one.
const heldMost = 4096

// frame is a Data message that was received.
type frame struct {
	wire.Data
	bytes int
	link  *link
}

// first is where the frame begins; of an empty one, where it ends.
func (f frame) first() uint64 {
	if len(f.Segments) > 0 {
		return f.Segments[0].First
	}
	return f.Through
}

// piece is a segment in order, or the end of a frame without one.
type piece struct {
	segment reading.Segment // Count is 0 if there is none
	through uint64          // everything up to here has come, this piece included
	bytes   int
}

// stream puts the frames of one lane in order and hands them to its writer.
type stream struct {
	name    Stream
	session *session

	mu       sync.Mutex // guards what follows
	resolved bool
	lasts    []uint64 // what each output holds; the writer's while writing
	durable  uint64   // what all outputs hold
	last     uint64   // received without a gap; durable or in ready
	held     []frame  // out of order, ascending by first
	ready    []piece
	writing  bool
	faults   []string // why an output does not take readings, by output; empty if it does

	readings, duplicates, unreadable uint64
}

func newStream(s *session, lane reading.Lane) *stream {
	return &stream{
		name:    Stream{Gateway: s.gateway, Epoch: s.epoch, Lane: lane},
		session: s,
		lasts:   make([]uint64, len(s.opt.Outputs)),
		faults:  make([]string, len(s.opt.Outputs)),
	}
}

func (s *stream) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.writing && len(s.ready) == 0
}

// resume says where the lane goes on. The outputs are asked when the first
// carrier joins and nothing is being written, for another collector may have
// written meanwhile. A newer process of the gateway knows nothing of what this
// collector holds in memory, so it is not told.
func (s *stream) resume(ctx context.Context, first, newer bool) (wire.Resume, error) {
	s.mu.Lock()
	was := s.last
	if s.resolved && (!first || s.writing || len(s.ready) > 0) {
		defer s.mu.Unlock()
		return s.inMemory(newer), nil
	}
	s.mu.Unlock()
	lasts := make([]uint64, len(s.session.opt.Outputs))
	err := each(s.session.opt.Outputs, func(i int, o Output) (err error) {
		if lasts[i], err = o.Last(ctx, s.name); err != nil {
			return fmt.Errorf("output %s: last of %s: %w", o.Name(), s.name.Lane, err)
		}
		return nil
	})
	if err != nil {
		return wire.Resume{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.resolved && s.last != was {
		return s.inMemory(newer), nil // a carrier that was superseded had still more to read
	}
	s.resolved = true
	s.lasts = lasts
	s.durable = slices.Min(lasts)
	s.last = s.durable
	return wire.Resume{Durable: s.durable, Received: s.durable}, nil
}

// inMemory is where the lane goes on by what is known here. The caller holds mu.
func (s *stream) inMemory(newer bool) wire.Resume {
	if newer {
		return wire.Resume{Durable: s.durable, Received: s.durable}
	}
	return wire.Resume{Durable: s.durable, Received: s.last}
}

// forgetHeld lets go of what is out of order and came on carriers that left.
func (s *stream) forgetHeld() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = slices.DeleteFunc(s.held, func(f frame) bool {
		gone := !s.session.has(f.link)
		if gone {
			s.release(f.bytes)
		}
		return gone
	})
}

// release gives back memory. The caller holds mu.
func (s *stream) release(bytes int) {
	s.session.bytes.Add(-int64(bytes))
	s.session.memory.give(bytes)
}

// receive takes a frame, and blocks while all sessions together hold too much.
func (s *stream) receive(ctx context.Context, f frame) error {
	s.mu.Lock()
	inOrder := f.Prev <= s.last
	s.mu.Unlock()
	if inOrder {
		if err := s.session.memory.take(ctx, f.bytes); err != nil {
			return err
		}
	} else if !s.session.memory.spare(f.bytes) {
		return errReorder
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	total := s.session.bytes.Add(int64(f.bytes))
	switch {
	case f.Through <= s.last:
		s.duplicates += count(f.Segments)
		s.release(f.bytes)
		s.session.ack(s.name.Lane, false)
		return nil
	case s.holds(f):
		s.duplicates += count(f.Segments)
		s.release(f.bytes)
		s.session.ack(s.name.Lane, true)
		return nil
	case total > int64(f.bytes) && total > windowSlack*int64(s.session.opt.Limits.Unacked),
		f.Prev > s.last && len(s.held) >= heldMost:
		s.release(f.bytes)
		return fmt.Errorf("lane %s: %w", s.name.Lane, errWindow)
	}
	i, _ := slices.BinarySearchFunc(s.held, f.first(), func(h frame, first uint64) int { return cmp.Compare(h.first(), first) })
	s.held = slices.Insert(s.held, i, f)
	s.order()
	if len(s.held) > 0 {
		s.session.ack(s.name.Lane, true)
	}
	s.startWriter(f.link.service)
	return nil
}

// holds says that all of a frame is in those that wait: a gateway sends again on
// another carrier what seems stuck on one. The caller holds mu.
func (s *stream) holds(f frame) bool {
	reach := f.Prev
	for _, h := range s.held {
		if h.Prev <= reach {
			reach = max(reach, h.Through)
		}
	}
	return f.Prev > s.last && reach >= f.Through
}

// start has what waits written, if the call of Serve that was writing it ended.
func (s *stream) start(srv service) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.startWriter(srv)
}

// startWriter starts the writer if there is work and none runs. The caller holds
// mu.
func (s *stream) startWriter(srv service) {
	if len(s.ready) > 0 && !s.writing {
		s.writing = true
		srv.wg.Go(func() { s.write(srv.hard) })
	}
}

// order moves to ready what can go. A frame says that nothing exists between
// its Prev and its first reading; so if that covers the gap after last, all held
// frames that begin earlier can go as well, and go first. The caller holds mu.
func (s *stream) order() {
	for slices.ContainsFunc(s.held, func(f frame) bool { return f.Prev <= s.last }) {
		f := s.held[0]
		s.held = slices.Delete(s.held, 0, 1)
		left := f.bytes
		for _, seg := range f.Segments {
			if seg.Last() <= s.last {
				s.duplicates += uint64(seg.Count)
				continue
			}
			if seg.First <= s.last {
				s.duplicates += s.last - seg.First + 1 // the writer cuts them off
			}
			left -= len(seg.Data)
			s.last = seg.Last()
			s.ready = append(s.ready, piece{segment: seg, through: s.last, bytes: len(seg.Data)})
		}
		if f.Through > s.last || len(s.ready) > 0 {
			s.last = max(s.last, f.Through)
			s.ready = append(s.ready, piece{through: s.last, bytes: left})
			continue
		}
		s.release(left)
	}
}

// state is what an Ack says of the lane.
func (s *stream) state(ranges bool) wire.LaneAck {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := wire.LaneAck{Lane: s.name.Lane, Durable: s.durable}
	if !ranges {
		return a
	}
	if s.last > s.durable {
		a.Received = append(a.Received, wire.Range{First: s.durable + 1, Last: s.last})
	}
	for _, f := range s.held {
		first := f.first()
		if n := len(a.Received); n > 0 && first <= a.Received[n-1].Last+1 {
			a.Received[n-1].Last = max(a.Received[n-1].Last, f.Through)
			continue
		}
		if len(a.Received) == wire.MaxRanges {
			break
		}
		if first > s.durable {
			a.Received = append(a.Received, wire.Range{First: first, Last: f.Through})
		}
	}
	return a
}

func count(segments []reading.Segment) (n uint64) {
	for _, s := range segments {
		n += uint64(s.Count)
	}
	return n
}

// each runs f for every output, at once if there are several.
func each(outputs []Output, f func(int, Output) error) error {
	if len(outputs) == 1 {
		return f(0, outputs[0])
	}
	errs := make([]error, len(outputs))
	var wg sync.WaitGroup
	for i, o := range outputs {
		wg.Go(func() { errs[i] = f(i, o) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
