package store

import (
	"context"
	"fmt"
	"sync"
	"time"

	"sluice/reading"
)

// What may wait for the disk before Append blocks.
const (
	maxWaitingReadings = 32 << 10
	maxWaitingBytes    = 4 << 20
	maxBatchBytes      = maxNode / 4
)

// entry is one batch on its way to the disk.
type entry struct {
	reading.Batch
	ctx   context.Context // of Append
	done  func(error)
	bytes int
	err   error
}

// group collects what the next commit will write, while the present one syncs.
type group struct {
	// wake tells the committer that due may have changed. Capacity 1.
	wake chan struct{}
	// enough bytes make a commit due at once.
	enough int

	mu       sync.Mutex // guards what follows
	closed   bool
	entries  []entry
	readings int
	pressure pressure
	room     chan struct{} // closed when the group is taken
}

func (g *group) init(enough int) {
	g.enough = enough
	g.wake = make(chan struct{}, 1)
	g.room = make(chan struct{})
}

func (g *group) nudge() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

func (g *group) add(ctx context.Context, b reading.Batch, done func(error)) error {
	if err := checkReceipt(b.Receipt); err != nil {
		return fmt.Errorf("append: %w", err)
	}
	b.Receipt.Sender = senderName(b.Receipt.Sender)
	size := batchBytes(b)
	if size > maxBatchBytes {
		return fmt.Errorf("append %d readings: %d bytes, at most %d: split the batch", len(b.Readings), size, maxBatchBytes)
	}
	for {
		g.mu.Lock()
		if g.closed {
			g.mu.Unlock()
			return ErrClosed
		}
		// Whatever its size, a batch finds room in an empty group.
		if len(g.entries) == 0 ||
			g.readings+len(b.Readings) <= maxWaitingReadings && g.pressure.bytes+size <= maxWaitingBytes {
			break
		}
		room := g.room
		g.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return fmt.Errorf("append %d readings: %w (%w)", len(b.Readings), ErrBusy, context.Cause(ctx))
		}
	}
	defer g.mu.Unlock()
	g.entries = append(g.entries, entry{Batch: b, ctx: ctx, done: done, bytes: size})
	g.readings += len(b.Readings)
	q := &g.pressure
	before := *q
	q.batches++
	q.bytes += size
	q.latest = time.Now()
	if q.batches == 1 {
		q.first = q.latest
	}
	q.urgent = q.urgent || b.Lane == reading.Alarm
	// The committer looks again only when what it knows no longer holds; waking
	// it for every batch would cost more than the batch.
	if q.batches == 1 || q.batches == busyBatches || q.urgent != before.urgent ||
		before.bytes < g.enough && q.bytes >= g.enough {
		g.nudge()
	}
	return nil
}

// acknowledged notes that n more sequence numbers can be deleted.
func (g *group) acknowledged(n uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	q := &g.pressure
	before := q.acked
	q.acked += n
	if before == 0 {
		q.ackedSince = time.Now()
	}
	if before == 0 || before < ackReadings && q.acked >= ackReadings {
		g.nudge()
	}
}

// urge makes a commit due at once.
func (g *group) urge() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pressure.urgent = true
	g.nudge()
}

// waiting says how much waits.
func (g *group) waiting() pressure {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.pressure
}

// take empties the group; done is the slice that take returned before, now free.
func (g *group) take(done []entry) []entry {
	clear(done)
	g.mu.Lock()
	defer g.mu.Unlock()
	es := g.entries
	g.entries = done[:0]
	g.readings = 0
	g.pressure = pressure{}
	close(g.room)
	g.room = make(chan struct{})
	return es
}

// close refuses what comes from now on, and wakes what waits for room.
func (g *group) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	close(g.room)
	g.room = make(chan struct{})
}
