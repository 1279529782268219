// Package update replaces the system of an appliance that has two. RAUC writes a
// signed bundle to the one that does not run; after the reboot the new system is
// on trial. Once the collector has acknowledged a reading that it sent it is
// confirmed, and if that does not happen the old system is started again.
package update

import (
	"fmt"
	"time"
)

// trialTime is how long after the boot a system on trial may take to deliver: a
// modem that needs a power cycle, and a slow network, are up by then.
const trialTime = 20 * time.Minute

// State is what the policy is told.
type State struct {
	SinceBoot time.Duration
	Slot      string // of the system that runs: "A" or "B"
	Boot      uint64 // tells this boot from others
	Trial     *Trial // nil if no system is on trial
	Acked     uint64 // readings that the collector has acknowledged in this boot
}

// Action is what to do about the system that runs.
type Action string

// The actions.
const (
	Wait    Action = "wait"
	Confirm Action = "confirm" // mark the system that runs good
	GiveUp  Action = "give up" // mark it bad and reboot, into the other one
	Over    Action = "over"    // the old system runs: note that the trial failed
)

// Decision is an action and its reason in words.
type Decision struct {
	Action Action
	Reason string
}

// Decide is the policy.
func Decide(s State) Decision {
	t := s.Trial
	switch {
	case t == nil:
		// The boot loader counts a try at every boot, until somebody says that it
		// went well.
		return Decision{Confirm, "the gateway runs"}
	case s.Slot == t.From && s.Boot == t.Boot && t.Failed != "":
		return Decision{Wait, t.Failed}
	case s.Slot == t.From && s.Boot == t.Boot:
		return Decision{Wait, "being installed, or installed: it starts at the next reboot"}
	case s.Slot == t.From && t.Failed != "":
		return Decision{Over, t.Failed}
	case s.Slot == t.From:
		return Decision{Over, "it was not written to its end, did not start, or lost power before it was confirmed"}
	case t.Failed != "":
		return Decision{GiveUp, t.Failed}
	case t.Silent:
		return Decision{Confirm, "the gateway runs, and no collector was configured"}
	case s.Acked > 0:
		return Decision{Confirm, "the collector acknowledged readings"}
	case s.SinceBoot >= trialTime:
		return Decision{GiveUp, fmt.Sprintf("the collector acknowledged no reading within %.0f minutes of the boot", trialTime.Minutes())}
	}
	return Decision{Wait, fmt.Sprintf("on trial: confirmed once the collector acknowledges a reading, given up %.0f minutes after the boot", trialTime.Minutes())}
}
