//go:build !linux

package clock

import (
	"math/rand/v2"
	"time"
)

// System is this machine's clocks, as far as Go knows them: a boot is a start
// of the program.
type System struct {
	boot  uint64
	start time.Time
}

var _ Source = (*System)(nil)

// NewSystem returns this machine's clocks.
func NewSystem() (*System, error) {
	return &System{boot: max(rand.Uint64(), 1), start: time.Now()}, nil
}

// Read returns both clocks of one instant.
func (s *System) Read() (wall, mono int64) {
	now := time.Now()
	return now.UnixNano(), int64(now.Sub(s.start))
}

// Check takes the system at its word.
func (s *System) Check() bool { return true }

// Boot is a random number.
func (s *System) Boot() uint64 { return s.boot }
