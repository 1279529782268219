package admin

import (
	"fmt"
	"time"
)

// When something that should move is said to stand still.
const (
	// ackLate is longer than the longest flush interval that is usual on
	// metered links (60 s) and the acknowledgement time-out together.
	ackLate = 90 * time.Second
	// commitLate is far above the outliers of worn SD cards (about 1 s).
	commitLate = 15 * time.Second
	// linkLate is when a link that is down deserves a look: soon enough for
	// who has just powered the box and stands beside it.
	linkLate = 30 * time.Second
)

// Judge says what is wrong with a gateway in the given state. flush is how long
// the uplink may gather readings before it sends them.
func Judge(s *Status, flush time.Duration) Health {
	h := Health{Reasons: []string{}, Warnings: []string{}}
	bad := func(format string, args ...any) { h.Reasons = append(h.Reasons, fmt.Sprintf(format, args...)) }
	warn := func(format string, args ...any) { h.Warnings = append(h.Warnings, fmt.Sprintf(format, args...)) }

	if s.Store.Paused != "" {
		bad("nothing is taken in: %s", s.Store.Paused)
	}
	if w := seconds(s.Store.CommitWaitingSeconds); w > commitLate {
		bad("a commit has not ended for %s: check the disk", short(w))
	}
	u := &s.Uplink
	waiting, oldest := s.Store.Backlog()
	switch {
	case !u.Configured:
		warn("no collector is configured: readings stay on disk")
	case !u.Up && u.LastAck.IsZero():
		if s.Time.Sub(s.Started) > linkLate {
			warn("no collector was reached yet: %s", u.Reason)
		}
	case !u.Up:
		if last := s.Time.Sub(u.LastAck); last > linkLate {
			warn("no collector, and nothing acknowledged for %s: %s", short(last), u.Reason)
		}
	case waiting > 0:
		// Still means: the link is up, something is older than it may be, and
		// no acknowledgement has come since.
		last := u.Since
		if u.LastAck.After(last) {
			last = u.LastAck
		}
		if still := min(s.Time.Sub(last), seconds(oldest)); still > ackLate+flush {
			bad("nothing was acknowledged for %s although the link is up and %d readings wait", short(still), waiting)
		}
	}
	if len(u.Paths) == 0 && u.Choice != "" {
		warn("%s", u.Choice)
	}
	for i := range u.Paths {
		if p := &u.Paths[i]; !p.Usable && s.Time.Sub(p.Since) > linkLate {
			warn("path %s is %s%s", p.Name, p.state(), because(p.Reason))
		}
	}
	for _, src := range s.Ingest.Sources {
		if !src.Up {
			warn("%s: %s", src.Name, src.Reason)
		}
	}
	for _, b := range s.Devices.Bridges {
		if !b.Online {
			warn("Zigbee2MQTT at %q is offline", b.Base)
		}
	}
	if s.Configuration.Refused != "" {
		warn("the configuration file was changed but not taken: %s", s.Configuration.Refused)
	}
	if s.Store.SetAside != "" {
		warn("the store was damaged: what could not be read is in %s", s.Store.SetAside)
	}
	if s.Store.QuotaBytes > 0 && s.Store.UsedBytes > s.Store.QuotaBytes/10*9 {
		warn("the store is nearly full: %s of %s", size(s.Store.UsedBytes), size(s.Store.QuotaBytes))
	}
	if s.Clock.Quality == "unsynchronised" {
		warn("the clock is not set: readings are sent with their time since boot")
	}
	h.OK = len(h.Reasons) == 0
	return h
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
