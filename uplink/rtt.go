package uplink

import "time"

// roundTrip smooths round trips as RFC 6298, section 2, does. The zero roundTrip
// knows none.
type roundTrip struct{ smoothed, deviation time.Duration }

func (r *roundTrip) add(sample time.Duration) {
	if r.smoothed == 0 {
		r.smoothed, r.deviation = sample, sample/2
		return
	}
	r.deviation += ((r.smoothed - sample).Abs() - r.deviation) / 4
	r.smoothed += (sample - r.smoothed) / 8
}

// most is how long an answer takes that is not late.
func (r roundTrip) most() time.Duration {
	return max(r.smoothed*3/2, r.smoothed+4*r.deviation)
}
