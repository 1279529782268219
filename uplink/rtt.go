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

// usual is how long an answer may well take.
func (r roundTrip) usual() time.Duration { return r.smoothed*3/2 + r.deviation }

// most is how long an answer takes that is not lost.
func (r roundTrip) most() time.Duration { return max(3*r.smoothed, r.smoothed+4*r.deviation) }
