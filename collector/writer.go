package collector

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"sluice/reading"
)

const (
	// A write takes what waits, up to these bounds.
	writeReadings = 8192
	writeBytes    = 1 << 20

	// receiptAfter is how long readings that came may lack an Ack while an output
	// takes them: the gateway must not think that they are stuck on the way.
	receiptAfter = 100 * time.Millisecond

	retryFirst = 100 * time.Millisecond
	retryMost  = 5 * time.Second // below the time a gateway waits for a sign of life
)

// scratch is the memory of one write. Few streams write at one instant, so it is
// shared by all.
type scratch struct {
	decoder    reading.Decoder
	readings   []reading.Reading
	deliveries []Delivery
	starts     []int // of each delivery in readings
}

// write is the stream's writer: it takes everything that waits, makes it durable
// at every output, acknowledges it, and ends when nothing waits.
func (s *stream) write(ctx context.Context) {
	sc := s.session.scratch.Get().(*scratch)
	defer s.session.scratch.Put(sc)
	for {
		pieces, after := s.take()
		if len(pieces) == 0 {
			return
		}
		unreadable := sc.decode(pieces, after)
		written := s.receipts()
		err := each(s.session.opt.Outputs, func(i int, o Output) error {
			return s.writeOutput(ctx, i, o, sc.deliveries)
		})
		written()
		if !s.wrote(pieces, unreadable, err) {
			return
		}
	}
}

// receipts tells the gateway from time to time what has come, until stop.
func (s *stream) receipts() (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var timer *time.Timer
	told, stopped := uint64(0), false // guarded by mu
	timer = time.AfterFunc(receiptAfter, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if stopped {
			return
		}
		if s.last != told {
			told = s.last
			s.session.ack(s.name.Lane, true)
		}
		timer.Reset(receiptAfter)
	})
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		stopped = true
		timer.Stop()
	}
}

// take returns the pieces of the next write, which stay in ready until they are
// durable, and the last sequence number before them. Without any, the writer
// ends.
func (s *stream) take() (pieces []piece, after uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, readings, bytes := 0, 0, 0
	for n < len(s.ready) && readings < writeReadings && bytes < writeBytes {
		readings += s.ready[n].segment.Count
		bytes += s.ready[n].bytes
		n++
	}
	if n == 0 {
		s.writing = false
		s.ready = nil
	}
	return s.ready[:n:n], s.durable
}

// wrote notes that pieces are durable and acknowledges them, or that the
// collector ends before they were. It reports whether the writer goes on.
func (s *stream) wrote(pieces []piece, unreadable uint64, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.writing = false
		return false
	}
	after := s.durable
	for _, p := range pieces {
		s.release(p.bytes)
		s.readings += uint64(p.segment.Count)
		if p.segment.Count > 0 && p.segment.First <= after {
			s.readings -= after - p.segment.First + 1
		}
		after = p.through
	}
	s.unreadable += unreadable
	s.durable = after
	clear(s.ready[:len(pieces)]) // let go of the frames
	s.ready = s.ready[len(pieces):]
	s.session.ack(s.name.Lane, false)
	return true
}

// decode makes deliveries of pieces, leaving out what is up to after, and
// returns how many readings could not be decoded. Neighbours become one
// delivery.
func (sc *scratch) decode(pieces []piece, after uint64) (unreadable uint64) {
	clear(sc.readings)
	clear(sc.deliveries)
	sc.readings, sc.deliveries, sc.starts = sc.readings[:0], sc.deliveries[:0], sc.starts[:0]
	for _, p := range pieces {
		seg := p.segment
		if seg.Count == 0 {
			continue
		}
		first := max(seg.First, after+1)
		after = seg.Last()
		start := len(sc.readings)
		all, err := sc.decoder.Decode(sc.readings, seg.Data)
		if err == nil && len(all)-start != seg.Count {
			err = fmt.Errorf("%d readings where the frame says %d", len(all)-start, seg.Count)
		}
		n := int(seg.Last() - first + 1)
		if err != nil {
			unreadable += uint64(n)
			sc.deliveries = append(sc.deliveries, Delivery{First: first, Count: n, Unreadable: seg.Data, Reason: err.Error()})
			sc.starts = append(sc.starts, start)
			continue
		}
		kept := copy(all[start:], all[start+seg.Count-n:])
		sc.readings = all[:start+kept]
		if last := len(sc.deliveries) - 1; last >= 0 && sc.deliveries[last].Unreadable == nil && sc.deliveries[last].Last()+1 == first {
			sc.deliveries[last].Count += n
			continue
		}
		sc.deliveries = append(sc.deliveries, Delivery{First: first, Count: n})
		sc.starts = append(sc.starts, start)
	}
	for i := range sc.deliveries {
		if d := &sc.deliveries[i]; d.Unreadable == nil {
			d.Readings = sc.readings[sc.starts[i] : sc.starts[i]+d.Count]
		}
	}
	return unreadable
}

// writeOutput makes an output hold ds, however often it must be tried; it
// returns an error only when ctx ends.
func (s *stream) writeOutput(ctx context.Context, i int, o Output, ds []Delivery) error {
	pause := retryFirst
	for {
		err := s.tryOutput(ctx, i, o, ds)
		if err == nil {
			s.setFault(i, o, nil)
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, ErrConflict) {
			s.session.conflicts.Add(1)
			var last uint64
			if last, err = o.Last(ctx, s.name); err == nil {
				s.lasts[i] = last
				if pause == retryFirst {
					pause *= 2
					continue
				}
			}
		}
		if err != nil {
			s.setFault(i, o, err)
		}
		s.session.ack(s.name.Lane, true) // the gateway need not send again, nor give up
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		pause = min(2*pause, retryMost)
	}
}

// tryOutput writes what the output lacks of ds.
func (s *stream) tryOutput(ctx context.Context, i int, o Output, ds []Delivery) error {
	ds = after(ds, s.lasts[i])
	if len(ds) == 0 {
		return nil
	}
	if err := o.Write(ctx, s.name, s.lasts[i], ds); err != nil {
		return err
	}
	s.lasts[i] = ds[len(ds)-1].Last()
	return nil
}

// after returns what of ds is after a sequence number. It leaves ds as it is.
func after(ds []Delivery, last uint64) []Delivery {
	for len(ds) > 0 && ds[0].Last() <= last {
		ds = ds[1:]
	}
	if len(ds) == 0 || ds[0].First > last {
		return ds
	}
	ds = append([]Delivery(nil), ds...)
	d := &ds[0]
	cut := int(last - d.First + 1)
	d.First, d.Count = last+1, d.Count-cut
	if d.Unreadable == nil {
		d.Readings = d.Readings[cut:]
	}
	return ds
}

// setFault notes that an output fails or, with nil, works again, and logs the
// change.
func (s *stream) setFault(i int, o Output, err error) {
	text := ""
	if err != nil {
		text = fmt.Sprintf("output %s: %v", o.Name(), err)
	}
	s.mu.Lock()
	changed := (s.faults[i] == "") != (text == "")
	s.faults[i] = text
	s.mu.Unlock()
	if !changed {
		return
	}
	log := s.session.opt.Logger.With("output", o.Name(), "gateway", s.name.Gateway, "lane", s.name.Lane)
	if err != nil {
		log.Error("output does not take readings; they are kept and tried again", "error", err)
	} else {
		log.Info("output takes readings again")
	}
}

func newScratchPool() *sync.Pool { return &sync.Pool{New: func() any { return new(scratch) }} }
