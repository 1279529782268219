package sctp

import (
	"errors"
	"fmt"
	"syscall"
	"time"
)

// Tuning says how an association behaves. The zero Tuning is the appliance's,
// for two links of which one may die without a word; docs/sctp.md says why, and
// what it was measured to do.
type Tuning struct {
	// Heartbeat is how often a path that carries nothing is asked whether it is
	// there; 0 means DefaultHeartbeat. Each costs about 100 bytes each way.
	Heartbeat time.Duration
	// MTU is the largest packet with its IP header, 0 for what the route says.
	// It is for paths that drop what is too large and do not say so.
	MTU int

	kernel bool
	timers timers
}

// DefaultHeartbeat is rare since it is paid for on both ends and on each path:
// a death under traffic shows in the retransmission timer, and whoever wants to
// know of idle paths probes them.
const DefaultHeartbeat = 30 * time.Second

// KernelDefaults leaves everything as the kernel has it, for comparison: no
// option is set, not even NODELAY.
func KernelDefaults() Tuning { return Tuning{kernel: true} }

// timers are the numbers behind a Tuning.
type timers struct {
	initial   time.Duration // retransmission timeout before the first measurement
	least     time.Duration // its floor while round trips are short
	most      time.Duration // its ceiling while round trips are short
	sackDelay time.Duration // the longest an acknowledgement waits, where it covers several
	sackEvery uint32        // packets that one acknowledgement covers
	burst     uint32        // packets sent at once
	failing   uint16        // timeouts in a row that a path may have before traffic leaves it
	moved     uint16        // and before the primary is another for good
	inactive  uint16        // and before it counts as gone
	lost      uint16        // and the association, all paths together
}

// appliance are the timers of the zero Tuning.
//
// One timeout moves traffic, at once and for a round trip only if the path then
// answers a heartbeat; four move the primary, which stays moved. Random loss
// makes one timeout easily and four in a row hardly ever. Timeouts for the
// association are many because a dead path beside an idle one with rare
// heartbeats must not use them up; the session's deadlines are shorter.
func appliance() timers {
	return timers{
		initial: 300 * time.Millisecond, least: 200 * time.Millisecond, most: time.Second,
		sackDelay: 20 * time.Millisecond, sackEvery: 1, burst: 16,
		failing: 0, moved: 3, inactive: 4, lost: 40,
	}
}

const (
	initAttempts = 20 // until the dial's context ends
	initLongest  = time.Second
	lostClosing  = 4 // timeouts allowed to what is left at a Close

	sendBuffer    = 1 << 20
	receiveBuffer = 1 << 20 // the window that the peer sees is as large
)

// apply sets the options of a fresh socket; its associations inherit them.
func (t Tuning) apply(s *socket) error {
	if err := s.set(optEvents, []byte{0, 1, 1}); err != nil { // of associations and addresses
		return fmt.Errorf("subscribe to notifications: %w", err)
	}
	if t.kernel {
		return nil
	}
	v := t.timers
	if v == (timers{}) {
		v = appliance()
	}
	heartbeat := t.Heartbeat
	if heartbeat == 0 {
		heartbeat = DefaultHeartbeat
	}
	params := pathParams{heartbeat: heartbeat, timeouts: v.inactive, flags: heartbeatOn}
	if t.MTU != 0 {
		params.mtu, params.flags = uint32(t.MTU), params.flags|mtuFixed
	}
	if err := s.setBuffers(sendBuffer, receiveBuffer); err != nil {
		return err
	}
	for _, o := range []struct {
		name   string
		option int
		value  []byte
		since  string // the kernel, if not all have it; without it things work, less well
	}{
		{"SCTP_INITMSG", optInitMsg, initMsg(1, initAttempts, initLongest), ""},
		{"SCTP_RTOINFO", optRTOInfo, rtoInfo(v.initial, v.least, v.most), ""},
		{"SCTP_ASSOCINFO", optAssocInfo, assocParams(v.lost), ""},
		{"SCTP_DELAYED_SACK", optDelayedSack, sackInfo(v.sackDelay, v.sackEvery), ""},
		{"SCTP_NODELAY", optNoDelay, native.AppendUint32(nil, 1), ""},
		{"SCTP_MAX_BURST", optMaxBurst, assocValue(v.burst), ""},
		{"SCTP_PEER_ADDR_PARAMS", optPathParams, params.bytes(), ""},
		{"SCTP_EXPOSE_POTENTIALLY_FAILED_STATE", optExposeFailing, assocValue(2), "5.5"},
		// Both, or the kernel takes no address changes (RFC 5061, section 4.2.7).
		{"SCTP_AUTH_SUPPORTED", optAuth, assocValue(1), "5.4"},
		{"SCTP_ASCONF_SUPPORTED", optAsconf, assocValue(1), "5.4"},
	} {
		if err := s.set(o.option, o.value); err != nil && !(o.since != "" && errors.Is(err, syscall.ENOPROTOOPT)) {
			return fmt.Errorf("set %s: %w", o.name, err)
		}
	}
	return v.applyThresholds(s)
}

// applyThresholds sets when traffic leaves a path.
func (v timers) applyThresholds(s *socket) error {
	size, err := askThresholds(s)
	if errors.Is(err, syscall.ENOPROTOOPT) {
		return nil // before Linux 5.5
	}
	if err == nil {
		err = s.set(optThresholds, thresholds(size, v.inactive, v.failing, v.moved))
	}
	if err != nil {
		return fmt.Errorf("set SCTP_PEER_ADDR_THLDS_V2: %w", err)
	}
	return nil
}

// askThresholds returns the size of the structure that the kernel wants. What it
// makes of a question tells: one of 32 bits looks for the address elsewhere, and
// finds none.
func askThresholds(s *socket) (size int, err error) {
	_, err = s.get(optThresholds, thresholds(thresholdsSize64, 0, 0, 0))
	if errors.Is(err, syscall.ENOENT) {
		return thresholdsSize32, nil
	}
	return thresholdsSize64, err
}

// floor is the least retransmission timeout for a round trip: above it by what
// the peer may wait before it acknowledges and by some jitter, or every pause
// in the traffic would look like a death.
func (v timers) floor(rtt time.Duration) time.Duration {
	return max(v.least, rtt+rtt/4+75*time.Millisecond)
}

// ceiling is the greatest for a floor.
func (v timers) ceiling(floor time.Duration) time.Duration { return max(v.most, 2*floor) }
