package pathsel

import (
	"math"
	"time"
)

// Counts are packets in some span of time: chunks, segments or probes.
type Counts struct {
	Sent uint64 // each time that one was sent
	Lost uint64 // of those: to be sent again, or not answered
}

// Percent is the loss rate; [MS] 4.3 takes the retransmission ratio in the
// sender's buffer for it. What is sent again is lost as often as anything else,
// so it has to be among what was sent: of first sendings, p/(1-p) would be lost.
func (c Counts) Percent() float64 {
	switch {
	case c.Lost == 0:
		return 0
	case c.Lost >= c.Sent:
		return 100
	}
	return 100 * float64(c.Lost) / float64(c.Sent)
}

// Doubt is how much of Percent may be chance: two standard deviations.
func (c Counts) Doubt() float64 {
	p := c.Percent()
	return 2 * math.Sqrt(p*(100-p)/float64(max(1, c.Sent)))
}

// Plus is the sum.
func (c Counts) Plus(d Counts) Counts { return Counts{Sent: c.Sent + d.Sent, Lost: c.Lost + d.Lost} }

// Ratio turns counts that come bit by bit into loss rates that mean something:
// one rate for each stretch that is long enough and holds enough packets. The
// zero Ratio is not ready; use NewRatio.
type Ratio struct {
	least uint64
	span  time.Duration
	sum   Counts
	since time.Time
}

// NewRatio returns a Ratio that gives a rate no more often than every span and
// never from fewer packets than least.
func NewRatio(least int, span time.Duration) *Ratio {
	return &Ratio{least: uint64(least), span: span}
}

// Add counts packets and returns the rate in percent, if there is a new one.
func (r *Ratio) Add(now time.Time, c Counts) (percent float64, ok bool) {
	if r.sum == (Counts{}) {
		if c == (Counts{}) {
			return 0, false
		}
		r.since = now
	}
	r.sum = r.sum.Plus(c)
	if r.sum.Sent < r.least || now.Sub(r.since) < r.span {
		return 0, false
	}
	percent = r.sum.Percent()
	r.sum = Counts{}
	return percent, true
}

// Recent is the loss rate of the latest packets of a path that carries nothing
// but probes: few come, and each should count at once, for a while.
type Recent struct {
	least uint64
	parts []Counts // oldest first; together just over least
}

// NewRecent returns a Recent that looks back over so many packets.
func NewRecent(packets int) *Recent { return &Recent{least: uint64(packets)} }

// Add counts packets and returns the loss rate in percent of the latest ones.
// While there are fewer than it looks back over, the missing ones count as
// delivered, so that two lost probes of six are not a path that loses a third; and
// one lost probe is forgiven, or it alone might have an idle path left.
func (r *Recent) Add(c Counts) float64 {
	if c != (Counts{}) {
		r.parts = append(r.parts, c)
	}
	var sum Counts
	for i := len(r.parts) - 1; i >= 0; i-- {
		if sum.Sent >= r.least {
			r.parts = append(r.parts[:0], r.parts[i+1:]...)
			break
		}
		sum = sum.Plus(r.parts[i])
	}
	sum.Sent = max(sum.Sent, r.least)
	sum.Lost -= min(sum.Lost, 1)
	return sum.Percent()
}
