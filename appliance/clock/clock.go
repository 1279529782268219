// Package clock says what time it is on a box that may not know: it has no
// battery for its clock, boots in 1970 or where the clock was saved last, and
// learns the time from the network minutes later. Each time carries how far it
// can be trusted, and what was stamped too early is corrected afterwards.
package clock

import (
	"sync/atomic"
	"time"

	"sluice/reading"
)

// Source is the machine's clocks.
type Source interface {
	// Read returns the wall clock, in nanoseconds since 1970-01-01 UTC, which
	// may step by years at any moment, and at the same instant the nanoseconds
	// since the machine booted, which never step.
	Read() (wall, mono int64)
	// Check reports whether the wall clock is being kept to a time server's. It
	// may be slow; it is called at most once a second.
	Check() (synced bool)
	// Boot tells this boot from others; it is not 0.
	Boot() uint64
}

// checkEvery is how long an answer of Source.Check holds: it costs system
// calls, and Now is called for every message.
const checkEvery = int64(time.Second)

// Clock stamps readings. It is safe for concurrent use.
type Clock struct {
	source Source
	floor  int64 // the wall clock is wrong below
	boot   uint64
	next   atomic.Int64 // mono of the next check
	synced atomic.Bool
	fix    corrector
}

// New returns a clock over a source. A wall clock below floor, the time the
// firmware was built, is not set, whatever the source says.
func New(source Source, floor time.Time) *Clock {
	c := &Clock{source: source, floor: floor.UnixNano(), boot: source.Boot()}
	c.fix.boot = c.boot
	c.next.Store(-1 << 63)
	return c
}

// Now is the time, cut to milliseconds, and its quality. While the clock is not
// set it carries boot and monotonic time, which Correct makes good later.
func (c *Clock) Now() reading.Time {
	wall, mono := c.source.Read()
	if c.isSynced(mono, wall) && wall >= c.floor {
		return reading.Time{Wall: cut(wall)}
	}
	return reading.Time{Wall: cut(wall), Quality: reading.Unsynchronised, Boot: c.boot, Mono: mono}
}

// Correct gives readings that were stamped in this boot before the clock was
// set their true time, if it is set by now; it reports whether it changed any.
func (c *Clock) Correct(rs []reading.Reading) bool {
	c.Now() // so that it is known even if no message came since
	return c.fix.Correct(rs)
}

// isSynced asks the source at most once in checkEvery.
func (c *Clock) isSynced(mono, wall int64) bool {
	next := c.next.Load()
	if mono < next || !c.next.CompareAndSwap(next, mono+checkEvery) {
		return c.synced.Load()
	}
	synced := c.source.Check() && wall >= c.floor
	if synced {
		// The wall clock may have been stepped since it was read; read both
		// again, now that it is known to be right.
		c.fix.Synchronised(c.source.Read())
	}
	c.synced.Store(synced)
	return synced
}

// cut drops what is below a millisecond: no message's arrival is known better,
// and it would cost bytes on the link.
func cut(ns int64) int64 { return ns - ns%int64(time.Millisecond) }
