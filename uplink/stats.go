package uplink

import (
	"slices"
	"time"

	"sluice/reading"
)

// State says what the uplink is doing.
type State string

// The states.
const (
	Connecting State = "connecting" // no carrier: the reason says why, or what is being tried
	Delivering State = "delivering" // a session is up and acknowledgements come
	Stalled    State = "stalled"    // a session is up, readings wait, no acknowledgements come
	Stopped    State = "stopped"
)

// CarrierState says what the carrier of a slot is doing.
type CarrierState string

// The states of a carrier.
const (
	CarrierDialling CarrierState = "dialling"
	CarrierWaiting  CarrierState = "waiting" // for the next attempt
	CarrierStandby  CarrierState = "standby" // joined, for want of others
	CarrierActive   CarrierState = "active"
	CarrierLeaving  CarrierState = "leaving" // takes no more; what is in flight is waited for
)

// Stats is the uplink at one instant.
type Stats struct {
	State     State
	Reason    string        // in words
	Since     time.Time     // of the state
	Collector string        // the dialer in use, or tried
	Remote    string        // the address in use, empty without a carrier
	Carrier   Info          // of the carrier in use; of several, of the first in the plan
	RTT       time.Duration // of that carrier
	Rate      float64       // frame bytes a second the link was seen to deliver; 0 if unknown
	BytesIn   uint64        // on all carriers since the start
	BytesOut  uint64
	Frames    uint64
	Readings  uint64 // acknowledged as durable
	Resent    uint64 // readings sent again after a carrier was lost
	Oversize  uint64 // readings that no collector's frame can hold: given up
	Retries   uint64 // attempts to connect after the first
	LastAck   time.Time
	Lanes     [reading.Lanes]LaneStats
	Carriers  []CarrierStats // one a slot, in the plan's order; then those that leave
}

// CarrierStats is the carrier of a slot at one instant.
type CarrierStats struct {
	Slot   string
	Path   string // of the dialer in use, or tried
	Kind   string
	Remote string // the address in use, empty without a carrier
	State  CarrierState
	Reason string    // in words
	Since  time.Time // of the state
	Info   Info
	// RTT is smoothed, from frames and Pings to their answers, so with what
	// stands before them in the carrier and with the collector's time.
	RTT      time.Duration
	Rate     float64 // frame bytes a second the carrier was seen to deliver; 0 if unknown
	InFlight int     // bytes sent and not durable at the collector
	// Waiting is how long the oldest frame sent on it has been without the
	// collector saying that it came, durable or not; 0 if there is none. One that
	// went again on another carrier counts until this one answers a Ping.
	Waiting   time.Duration
	Heard     time.Time // when anything was last received on it
	Delivered uint64    // frame bytes acknowledged, on all carriers of the slot
}

// carrierView is what the session shows of a carrier. Stats measures the rest.
type carrierView struct {
	CarrierStats
	carrier Carrier   // nil if none has joined
	first   bool      // of those that carry
	oldest  time.Time // when what Waiting counts from was sent
}

// LaneStats is one lane at one instant.
type LaneStats struct {
	Acked    uint64 // sequence numbers
	Sent     uint64
	InFlight int // bytes sent and unacknowledged
}

// Stats returns what the uplink is doing. It may be called at any time, and often.
func (s *Sender) Stats() Stats {
	s.mu.Lock()
	st := s.stats
	views := slices.Clone(s.carriers)
	s.mu.Unlock()
	now := time.Now()
	st.Carriers = make([]CarrierStats, 0, len(views))
	for _, v := range views {
		c := v.CarrierStats
		if v.carrier != nil {
			c.Info = v.carrier.Info()
			st.BytesIn += c.Info.BytesIn
			st.BytesOut += c.Info.BytesOut
			if v.first {
				st.Carrier = c.Info
			}
		}
		if !v.oldest.IsZero() {
			c.Waiting = now.Sub(v.oldest)
		}
		st.Carriers = append(st.Carriers, c)
	}
	if st.RTT == 0 {
		st.RTT = st.Carrier.RTT
	}
	return st
}

// Delivering says whether what is stored now can be expected to go out at once:
// a session is up, and acknowledgements come or nothing waits for one.
func (s *Sender) Delivering() bool { return int64(time.Since(s.started)) < s.deliversUntil.Load() }

// setState changes the state and logs it once.
func (s *Sender) setState(now time.Time, state State, reason string) {
	s.mu.Lock()
	changed := s.stats.State != state
	if changed {
		s.stats.State, s.stats.Since = state, now
	}
	s.stats.Reason = reason
	s.mu.Unlock()
	if changed {
		s.opt.Logger.Info("uplink "+string(state), "reason", reason)
	}
}
