package pathsel

import "time"

// Profile is every number of the policies.
type Profile struct {
	Name       string
	Window     time.Duration // of Max, see NewLosses
	Hysteresis HysteresisOptions
	Probation  ProbationOptions
	Slots      SlotOptions
	Slow       SlowOptions
	// Toggle makes the protocol switch the paper's: to the other, whatever that
	// carries.
	Toggle bool
	// Continual looks for a better path at every loss rate that becomes known, not
	// only when Method says so: at 5 % of loss the paper does nothing.
	Continual bool
}

// Default is what the appliance does.
func Default() Profile {
	return Profile{
		Name:       "default",
		Window:     10 * time.Minute,
		Hysteresis: HysteresisOptions{Points: 2, Share: 0.2, HoldDown: 10 * time.Second, Return: time.Minute, ReturnMost: 10 * time.Minute},
		Probation:  ProbationOptions{Good: 5, Wait: 15 * time.Second, WaitMost: 5 * time.Minute, Memory: 10 * time.Minute},
		Slots:      SlotOptions{Start: time.Second, Min: 250 * time.Millisecond, Max: 64 * time.Second, Critical: 5, Rises: 3, Least: 20, Alarm: true},
		Slow:       SlowOptions{Window: 10 * time.Minute, Fall: 0.5, Times: 4, Rise: 200 * time.Millisecond},
		Continual:  true,
	}
}

// Paper is what [MS] describes. Its slot has bounds only so that it stays a
// duration: 512 s is the longest that fits into the 600 s of the paper's runs.
// Fewer than 20 packets say nothing here either.
func Paper() Profile {
	return Profile{
		Name:   "paper",
		Slots:  SlotOptions{Start: 16 * time.Second, Min: 250 * time.Millisecond, Max: 512 * time.Second, Critical: 5, Rises: 3, Least: 20},
		Toggle: true,
	}
}
