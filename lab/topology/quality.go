package topology

import "time"

// Quality is what one direction of a link does to packets. The zero value
// passes them on as they are.
type Quality struct {
	Rate   int64         // bit/s; 0 for no limit
	Delay  time.Duration // of each packet
	Jitter time.Duration // the delay varies by this much either way; packets may overtake each other
	Loss   float64       // probability, 0 to 1, independent from packet to packet
	Burst  Burst         // loss in bursts; if set, Loss must be 0
	Limit  int           // packets that wait at most; 0 for 1000
}

// Burst is the Gilbert-Elliott model of loss: a direction is good or bad, and
// may change with each packet.
type Burst struct {
	Enter, Leave float64 // probability, a packet, of turning bad and good
	Bad, Good    float64 // probability of loss in each state
}

// Mean returns the share of packets that are lost in the long run.
func (b Burst) Mean() float64 {
	if b.Enter+b.Leave == 0 {
		return b.Good
	}
	bad := b.Enter / (b.Enter + b.Leave)
	return bad*b.Bad + (1-bad)*b.Good
}

// BurstsOf returns a model that loses the share loss in the long run, in bursts
// of length packets on average; while it is good it loses nothing.
func BurstsOf(loss, length float64) Burst {
	leave := 1 / length
	return Burst{Enter: leave * loss / (1 - loss), Leave: leave, Bad: 1}
}
