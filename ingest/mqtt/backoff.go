package mqtt

import "time"

const (
	firstPause = time.Second
	maxPause   = time.Minute
	// steady is how long a session must last for the pauses to start small
	// again: a broker that accepts and drops at once is as good as gone.
	steady = 30 * time.Second
)

// backoff says how long to wait before the next attempt: twice as long each
// time, up to a minute, and between half and all of that by chance, so that
// many gateways do not return to a broker together.
type backoff struct{ pause time.Duration }

// next returns the pause after a session that lasted for the given time;
// random is in [0,1).
func (b *backoff) next(lasted time.Duration, random float64) time.Duration {
	if lasted >= steady {
		b.pause = 0
	}
	b.pause = min(max(2*b.pause, firstPause), maxPause)
	return b.pause/2 + time.Duration(random*float64(b.pause/2))
}
