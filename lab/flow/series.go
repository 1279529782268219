package flow

import (
	"sync"
	"time"
)

// Interval is the width of a Series's slots.
const Interval = 100 * time.Millisecond

// Kilo is the kilobyte of all throughputs here: 1000 bytes.
const Kilo = 1000

// Series is a throughput over time: one value in KB/s for each slot.
type Series struct {
	Slot  time.Duration
	Rates []float64
}

// Mean returns the average rate in KB/s, 0 of an empty series.
func (s Series) Mean() float64 {
	var sum float64
	for _, r := range s.Rates {
		sum += r
	}
	if len(s.Rates) == 0 {
		return 0
	}
	return sum / float64(len(s.Rates))
}

// Variance returns the mean square distance from the mean, in (KB/s)^2. It
// depends on the width of the slots: compare only series of equal width.
func (s Series) Variance() float64 {
	mean := s.Mean()
	var sum float64
	for _, r := range s.Rates {
		sum += (r - mean) * (r - mean)
	}
	if len(s.Rates) == 0 {
		return 0
	}
	return sum / float64(len(s.Rates))
}

// From returns the series without what came before d.
func (s Series) From(d time.Duration) Series {
	skip := min(int(d/s.Slot), len(s.Rates))
	return Series{Slot: s.Slot, Rates: s.Rates[skip:]}
}

// Until returns the series without what came after d.
func (s Series) Until(d time.Duration) Series {
	return Series{Slot: s.Slot, Rates: s.Rates[:min(int(d/s.Slot), len(s.Rates))]}
}

// Every returns the series in slots that are n times as wide. A rest that does
// not fill a slot is left out.
func (s Series) Every(n int) Series {
	wide := Series{Slot: s.Slot * time.Duration(n)}
	for i := 0; i+n <= len(s.Rates); i += n {
		wide.Rates = append(wide.Rates, Series{Rates: s.Rates[i : i+n]}.Mean())
	}
	return wide
}

// Meter counts what arrives in slots of Interval. Arrivals outside of its span
// are not counted.
type Meter struct {
	origin time.Time
	end    time.Time

	mu    sync.Mutex // guards what follows
	slots []uint64
	last  time.Time
	gap   Gap
}

// Gap is a time in which nothing arrived.
type Gap struct {
	Start  time.Duration // since the meter's origin
	Length time.Duration
}

// NewMeter returns a meter of what arrives from origin on, for length.
func NewMeter(origin time.Time, length time.Duration) *Meter {
	return &Meter{
		origin: origin, end: origin.Add(length),
		slots: make([]uint64, length/Interval), last: origin,
	}
}

// Add counts n bytes that arrived now.
func (m *Meter) Add(now time.Time, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	slot := now.Sub(m.origin) / Interval
	if n == 0 || now.Before(m.origin) || int(slot) >= len(m.slots) {
		return
	}
	m.slots[slot] += uint64(n)
	m.arrive(now)
}

func (m *Meter) arrive(now time.Time) {
	if silent := now.Sub(m.last); silent > m.gap.Length {
		m.gap = Gap{Start: m.last.Sub(m.origin), Length: silent}
	}
	m.last = now
}

// Series returns the rates of the whole span.
func (m *Meter) Series() Series {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := Series{Slot: Interval}
	for _, n := range m.slots {
		s.Rates = append(s.Rates, float64(n)/Kilo/Interval.Seconds())
	}
	return s
}

// Longest returns the longest gap of the whole span. The span's beginning and
// end count as arrivals.
func (m *Meter) Longest() Gap {
	m.mu.Lock()
	defer m.mu.Unlock()
	gap := m.gap
	if silent := m.end.Sub(m.last); silent > gap.Length {
		gap = Gap{Start: m.last.Sub(m.origin), Length: silent}
	}
	return gap
}
