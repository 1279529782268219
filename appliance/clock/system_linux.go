package clock

import (
	"fmt"
	"hash/fnv"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// System is this machine's clocks.
type System struct {
	boot   uint64
	anchor atomic.Pointer[anchor]
}

// anchor is an instant on both monotonic clocks. Go's counts from the anchor,
// because it is read together with the wall clock and without a system call;
// only the kernel's CLOCK_BOOTTIME counts from the boot and through sleep, so
// the anchor is laid anew at every check.
type anchor struct {
	at   time.Time
	mono int64 // nanoseconds since the boot
}

var _ Source = (*System)(nil)

// bootIDFile holds a random identifier that the kernel draws at every boot.
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// NewSystem returns this machine's clocks.
func NewSystem() (*System, error) {
	id, err := os.ReadFile(bootIDFile)
	if err != nil {
		return nil, fmt.Errorf("boot id: %w: mount /proc", err)
	}
	s := &System{boot: bootNumber(strings.TrimSpace(string(id)))}
	return s, s.lay()
}

// bootNumber is a boot id in 64 bits, never 0.
func bootNumber(id string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(id))
	return max(h.Sum64(), 1)
}

// lay anchors Go's monotonic clock in CLOCK_BOOTTIME.
func (s *System) lay() error {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return fmt.Errorf("clock since boot: %w", err)
	}
	s.anchor.Store(&anchor{at: time.Now(), mono: ts.Nano()})
	return nil
}

// Read returns both clocks of one instant.
func (s *System) Read() (wall, mono int64) {
	now, a := time.Now(), s.anchor.Load()
	return now.UnixNano(), a.mono + int64(now.Sub(a.at))
}

// Check reads the kernel's STA_UNSYNC, which time daemons clear once they hold
// the clock and which comes back when they stop. A kernel that does not answer
// is taken at its word: the floor still guards against 1970.
func (s *System) Check() bool {
	if s.lay() != nil {
		return false // the old anchor still holds, but for time asleep
	}
	var tx unix.Timex
	if _, err := unix.Adjtimex(&tx); err != nil {
		return true
	}
	return tx.Status&unix.STA_UNSYNC == 0
}

// Boot is the kernel's boot id in 64 bits.
func (s *System) Boot() uint64 { return s.boot }
