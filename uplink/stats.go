package uplink

import (
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

// Stats is the uplink at one instant.
type Stats struct {
	State     State
	Reason    string    // in words
	Since     time.Time // of the state
	Collector string    // the dialer in use, or tried
	Remote    string    // the address in use, empty without a carrier
	Carrier   Info      // of the carrier in use
	RTT       time.Duration
	// ClockOffset is what to add to this clock to get the collector's, measured
	// when the carrier joined; half the round trip it may be wrong.
	ClockOffset time.Duration
	Rate        float64 // frame bytes a second the link was seen to deliver; 0 if unknown
	BytesIn     uint64  // on all carriers since the start
	BytesOut    uint64
	Frames      uint64
	Readings    uint64 // acknowledged as durable
	Resent      uint64 // readings sent again after a carrier was lost
	Oversize    uint64 // readings that no collector's frame can hold: given up
	Retries     uint64 // attempts to connect after the first
	LastAck     time.Time
	Lanes       [reading.Lanes]LaneStats
}

// LaneStats is one lane at one instant.
type LaneStats struct {
	Acked    uint64 // sequence numbers
	Sent     uint64
	InFlight int // bytes sent and unacknowledged
}

// Stats returns what the uplink is doing. It may be called at any time.
func (s *Sender) Stats() Stats {
	s.mu.Lock()
	st, carrier := s.stats, s.carrier
	s.mu.Unlock()
	if carrier != nil {
		st.Carrier = carrier.Info()
		st.Remote = carrier.RemoteAddr().String()
		st.BytesIn += st.Carrier.BytesIn
		st.BytesOut += st.Carrier.BytesOut
		if st.RTT == 0 {
			st.RTT = st.Carrier.RTT
		}
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
