package uplink

import (
	"math"
	"slices"
	"strings"
	"time"
)

// publish shows the session's state to Stats and Delivering.
func (s *session) publish(now time.Time) {
	rank := s.carrying()
	var first *link // of those that carry
	for _, l := range s.links {
		if first == nil && rank >= 0 && l.rank() == rank {
			first = l
		}
		s.describe(now, l, rank)
	}
	until := time.Duration(math.MaxInt64)
	if first == nil {
		until = 0
	}
	stalled := "no acknowledgement comes: the path is slow or dead"
	s.mu.Lock()
	for i := range s.lanes {
		ln := &s.lanes[i]
		s.stats.Lanes[i] = LaneStats{Acked: ln.acked, Sent: ln.sent, InFlight: ln.bytes}
		if len(ln.flight) > 0 {
			until = min(until, ln.progressAt.Sub(s.started)+s.opt.AckTimeout/stallPart)
			if ln.signAt.After(ln.progressAt) {
				stalled = "the collector answers, but its outputs take no readings"
			}
		}
	}
	s.stats.Remote, s.stats.RTT, s.stats.Rate = "", 0, 0
	switch {
	case first != nil:
		s.stats.Collector, s.stats.Remote, s.stats.RTT, s.stats.Rate = first.name, first.remote, first.ping, first.rate()
	case len(s.slots) > 0:
		s.stats.Collector = s.slots[0].dialler.Name
	}
	s.carriers = s.carriers[:0]
	for _, sl := range s.slots {
		v := sl.view()
		v.first = first != nil && sl.link == first
		s.carriers = append(s.carriers, v)
	}
	s.mu.Unlock()
	s.deliversUntil.Store(int64(until))
	switch {
	case len(s.links) == 0:
		s.setState(now, Connecting, s.trying())
	case first == nil && slices.ContainsFunc(s.links, func(l *link) bool { return l.draining }):
		s.setState(now, Stalled, "the collector shuts down")
	case first == nil:
		s.setState(now, Connecting, s.trying())
	case until <= now.Sub(s.started):
		s.setState(now, Stalled, stalled)
	default:
		s.setState(now, Delivering, "connected to "+first.name)
	}
}

// describe says what a carrier that has joined is doing, given the rank of those
// that carry.
func (s *session) describe(now time.Time, l *link, rank int) {
	sl := l.slot
	switch {
	case sl.leaving:
		sl.set(now, CarrierLeaving, "not planned any more")
	case l.draining:
		sl.set(now, CarrierLeaving, "the collector shuts down")
	case sl.standby && l.rank() == rank:
		sl.set(now, CarrierStandby, "carries readings: no other carrier has joined")
	case sl.standby:
		sl.set(now, CarrierStandby, "ready")
	case !l.doubtAt.IsZero():
		sl.set(now, CarrierActive, "does not deliver: what it had went again on the others")
	default:
		sl.set(now, CarrierActive, "carries readings")
	}
}

// trying says in words why no carrier has joined.
func (s *session) trying() string {
	if len(s.slots) == 0 {
		return "no carrier is planned: no path is usable"
	}
	if len(s.slots) == 1 {
		return s.slots[0].reason
	}
	var reasons []string
	for _, sl := range s.slots {
		reasons = append(reasons, sl.name+": "+sl.reason)
	}
	return strings.Join(reasons, "; ")
}

// view is what Stats shows of a slot.
func (sl *slot) view() carrierView {
	v := carrierView{CarrierStats: CarrierStats{
		Slot: sl.name, Path: sl.dialler.Path, Kind: sl.dialler.Kind,
		State: sl.state, Reason: sl.reason, Since: sl.since, Delivered: sl.delivered,
	}}
	if l := sl.link; l != nil {
		v.carrier, v.Remote = l.carrier, l.remote
		v.RTT, v.Rate, v.InFlight, v.Heard = l.rtt.smoothed, l.rate(), l.bytes, l.heardAt
		v.oldest = l.stuck()
	}
	return v
}
