package pathsel

import (
	"fmt"
	"math"
	"time"
)

// SlotOptions are the numbers of [MS] Algorithm 3.
type SlotOptions struct {
	Start    time.Duration // DetectSlot at the start
	Min, Max time.Duration // its bounds, which the paper does not have
	Critical float64       // percent: a rate above it is acted upon at once
	Rises    int           // so many rises in a row are acted upon
	Least    uint64        // fewer packets in a slot say nothing about loss
	// Alarm ends a slot before its time if the loss of the last second is above
	// Critical beyond doubt: else a link that was perfect for long would be looked
	// at once a minute. Not in the paper.
	Alarm bool
}

// Method is [MS] Algorithm 3, the TCP-SCTP method: when to act. It is told what
// was sent and lost, and says when it is time for [MS] Algorithm 1 or 2.
type Method struct {
	opt   SlotOptions
	slot  time.Duration // DetectSlot
	last  float64       // LastRate
	known bool          // LastRate is: the first slot has ended
	rises int           // Count
	since time.Time     // when the slot began
	sum   Counts        // in the slot
	moves []move        // in the last second
}

type move struct {
	at time.Time
	Counts
}

// NewMethod returns a method before its first slot.
func NewMethod(opt SlotOptions) *Method { return &Method{opt: opt, slot: opt.Start} }

// Outcome is what a Method says. Without Ended the slot goes on, and only Slot
// means something.
type Outcome struct {
	Ended  bool
	Act    bool
	Rate   float64       // percent, in the slot that ended, or the last that was known
	Slot   time.Duration // the length of the next one
	Reason string
}

// Observe counts what was sent and lost since the last call, on the carriers in
// use, and ends the slot if it is over.
func (m *Method) Observe(now time.Time, c Counts) Outcome {
	if m.since.IsZero() {
		m.since = now
	}
	m.sum = m.sum.Plus(c)
	alarm, recent := m.alarm(now, c)
	if !alarm && now.Sub(m.since) < m.slot {
		return Outcome{Slot: m.slot, Rate: m.last}
	}
	sum := m.sum
	if alarm {
		sum = recent
	}
	m.since, m.sum, m.moves = now, Counts{}, m.moves[:0]
	o := m.end(sum)
	if alarm {
		o.Reason = "before the slot was over: " + o.Reason
	}
	o.Ended, o.Rate, o.Slot = true, m.last, m.slot
	return o
}

// Restart begins the slot anew: another path or protocol carries now, and what
// was counted belongs to the one before.
func (m *Method) Restart(now time.Time) {
	m.since, m.sum, m.moves = now, Counts{}, m.moves[:0]
}

// end is lines 6 to 26 of the listing.
func (m *Method) end(c Counts) Outcome {
	if c.Sent < m.opt.Least {
		return Outcome{Reason: fmt.Sprintf("%d packets in a slot say nothing; loss stays at %.1f %%", c.Sent, m.last)}
	}
	rate, before := c.Percent(), m.last
	m.last = rate
	switch {
	case !m.known:
		m.known = true // lines 2 and 3
		return Outcome{Reason: fmt.Sprintf("first slot, loss %.1f %%", rate)}
	case rate > m.opt.Critical: // line 6
		m.rises = 0
		return Outcome{Act: true, Reason: fmt.Sprintf("loss %.1f %% is over %.0f %%", rate, m.opt.Critical)}
	case rate > before: // line 13 says >=, the prose says larger
		m.rises++
		m.slot = max(m.opt.Min, m.slot/2)
		if m.rises >= m.opt.Rises { // line 23
			m.rises = 0
			return Outcome{Act: true, Reason: fmt.Sprintf("loss rose %d times in a row, to %.1f %%", m.opt.Rises, rate)}
		}
		return Outcome{Reason: fmt.Sprintf("loss rose from %.1f to %.1f %%, %d of %d", before, rate, m.rises, m.opt.Rises)}
	}
	m.rises = 0
	m.slot = min(m.opt.Max, m.slot*2)
	return Outcome{Reason: fmt.Sprintf("loss %.1f %% after %.1f %%", rate, before)}
}

// alarm says whether the last second's loss is above the critical rate by more
// than chance explains: two standard deviations of what the critical rate would
// give. Of the last quarter of a second four must say so, as it is looked at so
// often; it shows sooner what was good until just now.
func (m *Method) alarm(now time.Time, c Counts) (bool, Counts) {
	if !m.opt.Alarm {
		return false, Counts{}
	}
	if c != (Counts{}) {
		m.moves = append(m.moves, move{now, c})
	}
	old := 0
	for old < len(m.moves) && now.Sub(m.moves[old].at) >= time.Second {
		old++
	}
	m.moves = append(m.moves[:0], m.moves[old:]...)
	var second, quarter Counts
	for _, v := range m.moves {
		second = second.Plus(v.Counts)
		if now.Sub(v.at) < time.Second/4 {
			quarter = quarter.Plus(v.Counts)
		}
	}
	if m.beyond(quarter, 4) {
		return true, quarter
	}
	return m.beyond(second, 2), second
}

// beyond says whether a loss is above the critical rate by so many standard
// deviations.
func (m *Method) beyond(c Counts, deviations float64) bool {
	usual := float64(c.Sent) * m.opt.Critical / 100
	return c.Sent >= m.opt.Least && float64(c.Lost) > usual+deviations*math.Sqrt(usual)
}
