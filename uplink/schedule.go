package uplink

import (
	"time"

	"sluice/reading"
)

const (
	// occupy is how long one frame may keep a link busy: an alarm waits for at
	// most one frame.
	occupy = 20 * time.Millisecond
	// unsentFor is how long the bytes in a carrier that are not on their way may
	// keep the link busy: a little longer than it takes to hand it more.
	unsentFor   = 10 * time.Millisecond
	unsentLeast = 1500 // a packet's worth keeps a slow link busy
	unsentMost  = 128 << 10
	// frameLeast keeps headers and flushes small against a frame's readings: by
	// measurement, office readings take a quarter more bytes in frames half as
	// large. It is also the size while the rate is unknown, so that a link of a
	// few kbit/s is not choked by its first frame.
	frameLeast = 4 << 10
)

// schedule decides what goes next. It neither reads the clock nor keeps state.
type schedule struct {
	flush    time.Duration // how long a live reading may wait for company
	frameMax int           // bytes, the configuration's and the collector's
	window   int           // bytes unacknowledged, the collector's
}

// waiting is one lane as the schedule sees it.
type waiting struct {
	again  bool      // part of it was lost with a carrier and goes again
	bytes  int       // held and not sent yet
	since  time.Time // when the first of them was seen
	flight int       // bytes sent and unacknowledged
}

// decision is what to do now: send a frame of a lane, or wait.
type decision struct {
	send   bool
	lane   reading.Lane
	size   int       // bytes the frame should have, at most
	wakeAt time.Time // when waiting: look again then; zero means only after a change
}

// frameSize is how large a frame may be on a link of the given rate in bytes a
// second, 0 for unknown.
func (s schedule) frameSize(rate float64) int {
	return int(min(max(rate*occupy.Seconds(), frameLeast), float64(s.frameMax)))
}

// unsent is how many bytes may wait in a carrier of the given rate. The rate is
// in frame bytes, of which compression leaves fewer: so it is rather too much
// than too little.
func unsent(rate float64) int {
	return int(min(max(rate*unsentFor.Seconds(), unsentLeast), unsentMost))
}

// share is how much of the window a lane may fill: the last parts are kept for
// the lanes that overtake it.
func (s schedule) share(l reading.Lane) int {
	switch l {
	case reading.Alarm:
		return s.window
	case reading.Live:
		return s.window / 8 * 7
	default:
		return s.window / 8 * 6
	}
}

// next chooses the most urgent lane that has something due and room in the
// window.
func (s schedule) next(now time.Time, rate float64, lanes [reading.Lanes]waiting) decision {
	size := s.frameSize(rate)
	total := 0
	for _, w := range lanes {
		total += w.flight
	}
	var wakeAt time.Time
	for l := range reading.Lane(reading.Lanes) {
		w := lanes[l]
		if !w.again && w.bytes == 0 {
			continue
		}
		if l == reading.Live && !w.again && w.bytes < size {
			if due := w.since.Add(s.flush); now.Before(due) {
				wakeAt = due
				continue
			}
		}
		room := s.share(l) - total
		// A sliver of room is not worth a frame; but with nothing in flight one
		// always goes, or a small window would stop everything.
		if total > 0 && room < min(size, frameLeast) {
			continue
		}
		return decision{send: true, lane: l, size: max(1, min(size, room))}
	}
	return decision{wakeAt: wakeAt}
}
