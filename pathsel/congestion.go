package pathsel

import (
	"fmt"
	"time"
)

const (
	queueLeast   = 20 * time.Millisecond // a shorter queue is what one sender keeps by itself
	queueMemory  = 10 * time.Minute      // of the shortest round trip
	lossMemory   = 30 * time.Second      // of the last loss
	queuePackets = 4                     // what every further carrier keeps in the queue by itself
	packet       = 1500                  // bytes
	lossesKept   = 16                    // the latest losses count most
	// noticed is how long ago a packet was lost, at most, when it is sent again:
	// the queue that lost it may be gone by then.
	noticed = time.Second
)

// Congestion tells loss that is congestion from loss that is chance. A queue
// must be full before it drops, so the round trip stands well above its minimum
// while packets are lost; chance does not look at the queue. Where they cannot be
// told apart it is congestion, because then others share the link.
type Congestion struct {
	shortest trough // seconds
	longest  peak   // seconds, of late
	atLoss   float64
	lastLoss time.Time
}

// NewCongestion returns a Congestion that has seen nothing.
func NewCongestion() *Congestion {
	return &Congestion{shortest: trough{peak{window: queueMemory}}, longest: peak{window: noticed}}
}

// Observe enters the round trip of the path that carries data, 0 if it is not
// known, and what was sent and found lost since the last call.
func (c *Congestion) Observe(now time.Time, rtt time.Duration, counts Counts) {
	if rtt > 0 {
		c.shortest.add(now, rtt.Seconds())
		c.longest.add(now, rtt.Seconds())
	}
	longest := c.longest.get(now)
	if counts.Lost == 0 || longest == 0 {
		return
	}
	if now.Sub(c.lastLoss) > lossMemory {
		c.atLoss = longest
	}
	// Each loss counts the same: the few of an overflow some seconds ago are soon
	// outnumbered by those of a link that has turned bad.
	c.atLoss += (longest - c.atLoss) * min(1, float64(counts.Lost)/lossesKept)
	c.lastLoss = now
}

// Shortest is the shortest round trip of ten minutes, 0 if there is none.
func (c *Congestion) Shortest(now time.Time) time.Duration {
	return time.Duration(c.shortest.get(now) * float64(time.Second))
}

// Known says whether a loss was seen lately at a known round trip.
func (c *Congestion) Known(now time.Time) bool {
	return c.shortest.get(now) > 0 && now.Sub(c.lastLoss) <= lossMemory
}

// Is says whether losses are congestion, and why. With several carriers the
// queue is longer by what these keep in it at the rate given, in bytes a second.
func (c *Congestion) Is(now time.Time, carriers int, rate float64) (bool, string) {
	if !c.Known(now) {
		return true, "no loss was seen at a known round trip"
	}
	least := c.shortest.get(now)
	limit := max(queueLeast.Seconds(), least/2)
	if carriers > 1 && rate > 0 {
		limit += float64(carriers*queuePackets*packet) / rate
	}
	said := fmt.Sprintf("round trip %.0f ms while packets are lost, %.0f ms at least", 1000*c.atLoss, 1000*least)
	if c.atLoss-least > limit {
		return true, said + ": a queue overflows"
	}
	return false, said + ": no queue, loss by chance"
}
