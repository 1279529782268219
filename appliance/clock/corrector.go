package clock

import (
	"sync/atomic"

	"sluice/reading"
)

// corrector turns monotonic times of one boot into wall time once it has seen
// both together. It reads no clock. It is safe for concurrent use.
type corrector struct {
	boot   uint64
	offset atomic.Pointer[int64] // wall minus mono in ns; nil until the clock was set
}

// Synchronised says that the wall clock is right: it shows wall when mono
// nanoseconds have passed since boot.
func (c *corrector) Synchronised(wall, mono int64) {
	offset := wall - mono
	c.offset.Store(&offset)
}

// Correct gives the boot's unsynchronised readings their wall time, cut to
// milliseconds, and reports whether it changed any. Those of other boots stay
// as they are: nobody knows when that was.
func (c *corrector) Correct(rs []reading.Reading) (changed bool) {
	offset := c.offset.Load()
	if offset == nil {
		return false
	}
	for i := range rs {
		t := &rs[i].Time
		if t.Quality == reading.Unsynchronised && t.Boot == c.boot {
			*t = reading.Time{Wall: cut(t.Mono + *offset)}
			changed = true
		}
	}
	return changed
}
