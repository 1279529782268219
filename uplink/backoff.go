package uplink

import "time"

const (
	backoffFirst = 200 * time.Millisecond
	backoffMost  = 30 * time.Second
	backoffLeast = 20 * time.Millisecond // or an unlucky draw dials in a tight loop
)

// backoff spaces attempts to connect: a random wait below a bound that doubles,
// so that gateways which lost one collector at one instant do not come back at
// one instant. The zero backoff is ready.
type backoff struct{ failures int }

// next counts a failure and returns the wait that follows it; random is in
// [0, 1).
func (b *backoff) next(random float64) time.Duration {
	bound := backoffMost
	if b.failures < 8 { // 0.2 s << 8 is above the cap
		bound = min(backoffMost, backoffFirst<<b.failures)
	}
	b.failures++
	return max(backoffLeast, time.Duration(random*float64(bound)))
}

// reset forgets the failures, after a session that delivered.
func (b *backoff) reset() { b.failures = 0 }
