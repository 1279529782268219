package store

import (
	"context"
	"fmt"

	"sluice/reading"
)

// What one stored value holds at most, so that frames, which carry values as
// they are, stay small. A single larger reading is a value of its own.
const (
	maxSegmentReadings = 4096
	maxSegmentBytes    = 256 << 10 // as batchBytes counts
)

// commitRoom is what a commit may need beside its values: copies of the pages
// around them.
const commitRoom = 64 << 10

// keptArena is the largest buffer that is kept from one commit to the next.
const keptArena = 4 << 20

// segment is a value to be stored.
type segment struct {
	lane   reading.Lane
	first  uint64
	count  int
	lo, hi int // in plan.arena
}

// plan is a commit worked out: everything that does not need the transaction.
// A transaction that fails is tried again with the same plan.
type plan struct {
	entries    []entry
	segments   []segment
	arena      []byte // the values, and the receipts
	receipts   []receiptValue
	gone       []string
	next       [reading.Lanes]uint64 // the lanes' next sequence numbers afterwards
	uses       uint64
	cost       int64 // bytes of pages that the values take
	appended   uint64
	duplicates uint64
	refused    uint64
	stored     bool // done, so not to be done again
}

type receiptValue struct {
	sender string
	lo, hi int
}

// writes reports whether the plan has something for the disk.
func (p *plan) writes() bool { return len(p.segments) > 0 || len(p.receipts) > 0 || len(p.gone) > 0 }

// planner makes plans, with buffers that it keeps between them.
type planner struct {
	plan    plan
	lanes   [reading.Lanes][]int // indexes of entries
	chunk   []reading.Reading
	encoder reading.Encoder
}

// overtakes returns why e must not be stored although it could be: its sender has
// been told that something before it was refused. Alarms overtake at any time.
func overtakes(e *entry) error {
	if e.Lane == reading.Alarm || e.ctx.Err() == nil {
		return nil
	}
	if cause := context.Cause(e.ctx); cause != e.ctx.Err() {
		return fmt.Errorf("behind what was refused: %w", cause)
	}
	return nil // the sender has only gone away
}

// prepare works out the commit of es. room is how many bytes the quota leaves
// under Reject for alarms and for the rest; under DropOldest it is the quota.
func (p *planner) prepare(es []entry, s *state, rs *receipts, opt *Options, room, roomAlarm int64) *plan {
	pl := &p.plan
	if cap(pl.arena) > keptArena {
		pl.arena = nil
	}
	*pl = plan{entries: es, segments: pl.segments[:0], arena: pl.arena[:0], receipts: pl.receipts[:0], gone: pl.gone[:0], uses: s.uses}
	for l := range p.lanes {
		p.lanes[l] = p.lanes[l][:0]
		pl.next[l] = s.lanes[l].next
	}
	delivering := opt.Delivering()
	full := [2]bool{}
	for i := range es {
		e := &es[i]
		if e.Lane == reading.Live && !delivering {
			e.Lane = reading.Backfill
		}
		if e.err = overtakes(e); e.err != nil {
			pl.refused++
			continue
		}
		if rs.repeated(e.Receipt) {
			pl.duplicates++
			continue
		}
		left, alarm := &room, 0
		if e.Lane == reading.Alarm {
			left, alarm = &roomAlarm, 1
		}
		// Once one batch is refused, so are those behind it: a smaller one that
		// still fitted would overtake the one its sender has to repeat.
		if size := pagesOf(e.bytes + valueHeader); full[alarm] || size > *left {
			if opt.Policy == Reject {
				full[alarm] = true
			}
			e.err = fmt.Errorf("%d bytes of readings, %d of the quota's %d left: %w", e.bytes, max(*left, 0), opt.Quota, ErrFull)
			pl.refused++
			continue
		} else if opt.Policy == Reject {
			room -= size
			roomAlarm -= size
		}
		if e.Receipt.Sender != "" && e.Receipt.Keep > 0 {
			pl.uses++
			rs.add(e.Receipt, pl.uses)
		}
		p.lanes[e.Lane] = append(p.lanes[e.Lane], i)
	}
	now := opt.Now()
	for l, indexes := range p.lanes {
		header := value{lane: reading.Lane(l), stored: now, epoch: s.epoch, acked: s.lanes[l].acked}
		p.encodeLane(es, indexes, header)
	}
	for _, sender := range rs.dirty {
		if !sender.dirty {
			continue // forgotten by what came after it in the same group
		}
		lo := len(pl.arena)
		pl.arena = sender.encode(pl.arena)
		pl.receipts = append(pl.receipts, receiptValue{sender.name, lo, len(pl.arena)})
	}
	pl.gone = append(pl.gone, rs.gone...)
	for _, seg := range pl.segments {
		pl.cost += pagesOf(seg.hi - seg.lo)
		pl.appended += uint64(seg.count)
	}
	return pl
}

// encodeLane merges the batches of a lane into as few values as may be.
func (p *planner) encodeLane(es []entry, indexes []int, header value) {
	size := 0
	flush := func() {
		if len(p.chunk) > 0 {
			p.encode(p.chunk, header)
		}
		// The strings of readings must not live on in the buffer.
		clear(p.chunk)
		p.chunk, size = p.chunk[:0], 0
	}
	for _, i := range indexes {
		e := &es[i]
		if len(p.chunk)+len(e.Readings) > maxSegmentReadings || size+e.bytes > maxSegmentBytes {
			flush()
		}
		if len(e.Readings) <= maxSegmentReadings && e.bytes <= maxSegmentBytes {
			p.chunk = append(p.chunk, e.Readings...)
			size += e.bytes
			continue
		}
		for j := range e.Readings {
			r := &e.Readings[j]
			n := readingBytes(r)
			if len(p.chunk) == maxSegmentReadings || size+n > maxSegmentBytes {
				flush()
			}
			p.chunk = append(p.chunk, *r)
			size += n
		}
	}
	flush()
}

func (p *planner) encode(rs []reading.Reading, header value) {
	pl := &p.plan
	lo := len(pl.arena)
	pl.arena = appendHeader(pl.arena)
	pl.arena = p.encoder.Append(pl.arena, rs)
	header.first = pl.next[header.lane]
	header.count = len(rs)
	seal(pl.arena[lo:], header)
	pl.next[header.lane] += uint64(len(rs))
	pl.segments = append(pl.segments, segment{header.lane, header.first, len(rs), lo, len(pl.arena)})
}
