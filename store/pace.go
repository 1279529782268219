package store

import (
	"time"

	"sluice/reading"
)

// What waits, apart from the two options, for a commit to be worth its writes.
const (
	// gatherShare of the interval is what the first batch after a quiet time
	// waits for those that usually come with it.
	gatherShare = 8
	// busyBatches that came at less than busyPause from each other make a commit
	// cheap enough a reading to start as soon as no more arrive: senders that wait
	// for their acknowledgements with full windows are not held up for the rest
	// of an interval.
	busyBatches = 16
	busyPause   = 2 * time.Millisecond
	// ackWait is how long deletions wait for a commit to travel with. A crash
	// before costs a few seconds of readings sent twice; a commit for each
	// acknowledgement would double the writes of a slow sensor.
	ackWait     = 5 * time.Second
	ackReadings = 64 << 10
)

// pressure is what waits for a commit.
type pressure struct {
	batches int
	bytes   int
	urgent  bool      // an alarm waits, or a damaged value has to be set aside
	first   time.Time // when the first waiting batch came
	latest  time.Time // and the last one

	acked      uint64 // sequence numbers acknowledged and not yet deleted
	ackedSince time.Time
}

// pace decides when a commit starts.
//
// An SD card wears by commits more than by bytes: the smallest is three pages.
// So telemetry gets at most one commit per interval, and at most one interval of
// waiting. A batch after a quiet time waits an eighth of the interval only: that
// adds no commit to a steady flow, where the time since the last commit counts,
// and one to each burst at most. Alarms, a full group (bytes) and senders that
// keep many batches in flight (busyBatches) do not wait for the interval.
type pace struct {
	interval time.Duration
	bytes    int
}

// next returns when the next commit is due, given when the last one started;
// ok is false if nothing waits.
func (p pace) next(q pressure, last time.Time) (due time.Time, ok bool) {
	if q.batches > 0 {
		due, ok = q.first.Add(p.interval/gatherShare), true
		if t := last.Add(p.interval); t.After(due) {
			due = t
		}
		if t := q.first.Add(p.interval); t.Before(due) {
			due = t
		}
		busy := q.batches >= busyBatches && q.latest.Sub(q.first) < time.Duration(q.batches)*busyPause
		if t := q.latest.Add(busyPause); busy && t.Before(due) {
			due = t
		}
		if q.bytes >= p.bytes {
			due = q.first
		}
	}
	if q.acked > 0 {
		t := q.ackedSince.Add(ackWait)
		if q.acked >= ackReadings {
			t = q.ackedSince
		}
		if !ok || t.Before(due) {
			due, ok = t, true
		}
	}
	if q.urgent {
		// The zero time has always passed.
		return time.Time{}, true
	}
	return due, ok
}

// batchBytes is what b counts for in limits: about what its readings take when
// nothing is shared between them.
func batchBytes(b reading.Batch) int {
	n := 0
	for i := range b.Readings {
		n += readingBytes(&b.Readings[i])
	}
	return n
}

func readingBytes(r *reading.Reading) int {
	return len(r.Device) + len(r.Name) + len(r.Unit) + len(r.Value.Raw()) + 16
}
