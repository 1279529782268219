package steer

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"sluice/pathsel"
	"sluice/uplink"
)

const (
	// primaryAgain is how long the kernel may show another primary than it was
	// told.
	primaryAgain = time.Second
	// heartbeatMetered is rare because probes see to it that the path lives, and
	// each heartbeat is about 200 bytes with its answer.
	heartbeatMetered = 5 * time.Minute
)

// slotName is "sctp" or "tcp wlan0", with a number for each further one; an
// association that replaced another is "sctp r2".
func slotName(kind string, generation, number int) string {
	if generation > 1 {
		kind = fmt.Sprintf("%s r%d", kind, generation)
	}
	if number > 1 {
		kind = fmt.Sprintf("%s %d", kind, number)
	}
	return kind
}

func (s *Steer) mainSlot() string { return slotName(pathsel.SCTP, s.renewal.generation, 1) }

// plan tells the sender which slots to keep, if they are others than before.
func (s *Steer) plan(now time.Time) {
	s.rescue(now)
	var carry, rest []uplink.Slot
	add := func(slot uplink.Slot) {
		if slot.Standby {
			rest = append(rest, slot)
		} else {
			carry = append(carry, slot)
		}
	}
	protocol, scheme := s.effective(), s.effectiveScheme()
	if s.attempt.state == attemptTrying || s.attempt.state == attemptJoined {
		// It carries nothing before it is chosen, so that a trial disturbs nothing.
		add(s.slotSCTP(s.mainSlot(), protocol != pathsel.SCTP))
		for n := 2; protocol == pathsel.SCTP && n <= scheme.Carriers; n++ {
			add(s.slotSCTP(slotName(pathsel.SCTP, s.renewal.generation, n), false))
		}
		if !s.renewal.began.IsZero() {
			add(s.slotSCTP(slotName(pathsel.SCTP, s.renewal.generation+1, 1), true))
		}
	}
	for _, t := range s.tracks {
		if !t.Up || s.opt.DialTCP == nil {
			continue
		}
		chosen := protocol == pathsel.TCP && t.Name == s.hysteresis.Current()
		add(s.slotTCP(t.Name, 1, !chosen))
		for n := 2; chosen && n <= scheme.Carriers; n++ {
			add(s.slotTCP(t.Name, n, false))
		}
	}
	slots := append(carry, rest...)
	var text strings.Builder
	for _, slot := range slots {
		fmt.Fprintf(&text, "%s %v\n", slot.Name, slot.Standby)
	}
	if text.String() == s.planned {
		return
	}
	s.planned = text.String()
	s.opt.Sender.Plan(slots)
}

// rescue gives up TCP carriers whose path cannot be used, if they have data in
// flight that another carrier can take. What has none in flight is left as it
// is: it costs nothing, and the path may come back.
func (s *Steer) rescue(now time.Time) {
	for _, c := range s.carriers {
		if c.Kind != pathsel.TCP || c.InFlight == 0 {
			continue
		}
		t := s.track(c.Path)
		if t != nil && t.usable {
			continue
		}
		other := slices.ContainsFunc(s.carriers, func(o uplink.CarrierStats) bool {
			if o.Slot == c.Slot || !hasJoined(o) {
				return false
			}
			ot := s.track(s.carrierPath(o))
			return ot != nil && ot.usable
		})
		if other {
			why := "the path is gone"
			if t != nil {
				why = t.reason
			}
			s.giveUp(now, c.Slot, fmt.Errorf("path %s: %s", c.Path, why))
		}
	}
}

func (s *Steer) slotTCP(path string, number int, standby bool) uplink.Slot {
	slot := uplink.Slot{Name: slotName(pathsel.TCP+" "+path, 1, number), Standby: standby}
	for _, collector := range s.opt.Collectors(path) {
		slot.Dialers = append(slot.Dialers, uplink.Dialer{
			Name: collector, Kind: pathsel.TCP, Path: path,
			Dial: func(ctx context.Context) (uplink.Carrier, error) { return s.opt.DialTCP(ctx, path, collector) },
		})
	}
	return slot
}

func (s *Steer) slotSCTP(name string, standby bool) uplink.Slot {
	return uplink.Slot{Name: name, Standby: standby, Dialers: []uplink.Dialer{{
		Name: s.opt.Collectors(s.hysteresis.Current())[0], Kind: pathsel.SCTP,
		Dial: func(ctx context.Context) (uplink.Carrier, error) { return s.dialSCTP(ctx, name) },
	}}}
}

// dialSCTP runs in the sender's goroutines.
func (s *Steer) dialSCTP(ctx context.Context, slot string) (uplink.Carrier, error) {
	s.mu.Lock()
	addresses := slices.Clone(s.addresses)
	s.mu.Unlock()
	if len(addresses) == 0 {
		return nil, fmt.Errorf("dial %s: no path has an address for it", slot)
	}
	a, err := s.opt.DialSCTP(ctx, addresses)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.assocs[slot] = &association{Association: a, addresses: addresses}
	s.mu.Unlock()
	return a, nil
}

// primary is what an association was told.
type primary struct {
	of *association
	to netip.Addr
	at time.Time
}

// settle has every association go by the chosen path.
func (s *Steer) settle(now time.Time) {
	t := s.track(s.hysteresis.Current())
	for _, c := range s.carriers {
		if c.Kind != pathsel.SCTP || !hasJoined(c) {
			continue
		}
		s.mu.Lock()
		a := s.assocs[c.Slot]
		s.mu.Unlock()
		if a != nil && s.settled[c.Slot].of != a {
			s.settled[c.Slot] = primary{of: a}
			s.quieten(a, c.Slot)
		}
		if a == nil || t == nil || !t.SCTP.Remote.IsValid() {
			continue
		}
		remote := t.SCTP.Remote.Addr()
		if !slices.ContainsFunc(a.addresses, func(p PathAddress) bool { return p.Remote.Addr() == remote }) {
			continue
		}
		told := s.settled[c.Slot]
		if told.to == remote {
			strays := slices.ContainsFunc(c.Info.Paths, func(p uplink.PathInfo) bool { return p.Primary && p.Remote.Unmap() != remote.Unmap() })
			if !strays || now.Sub(told.at) < primaryAgain {
				continue
			}
		}
		s.settled[c.Slot] = primary{of: a, to: remote, at: now}
		if err := a.SetPrimary(remote); err != nil {
			s.log.Debug("set primary path", "slot", c.Slot, "path", t.Name, "error", err)
		}
	}
}

// quieten spares metered paths an association's heartbeats.
func (s *Steer) quieten(a *association, slot string) {
	for _, p := range a.addresses {
		if t := s.track(p.Path); t == nil || !t.Metered {
			continue
		}
		if err := a.SetHeartbeat(p.Remote.Addr(), heartbeatMetered); err != nil {
			s.log.Debug("set heartbeat", "slot", slot, "path", p.Path, "error", err)
		}
	}
}

// carrierPath is the path of a carrier: of an association, its primary.
func (s *Steer) carrierPath(c uplink.CarrierStats) string {
	if c.Kind != pathsel.SCTP {
		return c.Path
	}
	for _, p := range c.Info.Paths {
		if !p.Primary {
			continue
		}
		for _, t := range s.tracks {
			if t.SCTP.Remote.Addr().Unmap() == p.Remote.Unmap() {
				return t.Name
			}
		}
	}
	return s.hysteresis.Current()
}
