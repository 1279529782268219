package pathsel

import (
	"fmt"
	"time"
)

const (
	// doubtAfter is how much longer than the slowest usual round trip silence may
	// last: a collector's disk and two ticks of whoever asks.
	doubtAfter = 50 * time.Millisecond
	// deadUnanswered probes in a row make a path dead. At 2 % loss that is one
	// chance in six million each time.
	deadUnanswered = 4
	// deadWithData are enough if what was sent waits too: the data is one more
	// witness.
	deadWithData = 3
	// blindLeast is how long data must wait on a path that never answered a
	// probe: some networks drop UDP.
	blindLeast = time.Second
)

// Signs are a path's signs of life. Durations are as of now.
type Signs struct {
	RTT, RTTVar time.Duration // smoothed, of probes or the carrier; 0 if unknown
	// Waiting is how long the oldest data sent over the path has been
	// unacknowledged; 0 if nothing is.
	Waiting time.Duration
	// Heard is when anything was last received over the path; zero if never.
	Heard time.Time
	// Answers says that probes are answered on this path, ever.
	Answers bool
	// Unanswered counts probes in a row that are overdue.
	Unanswered int
}

// Life is what signs mean.
type Life int

// The states of life.
const (
	Alive   Life = iota
	Suspect      // probe it fast
	Dead
)

// String implements fmt.Stringer.
func (l Life) String() string { return [...]string{"alive", "suspect", "dead"}[l] }

// Judge says whether a path lives, and why not. It is a pure function: who asks
// every 50 ms, and probes a suspect path every 80 ms, learns of a silent death
// under load within 0.6 s at round trips up to 100 ms and within 1.5 s at 500.
func Judge(now time.Time, s Signs) (Life, string) {
	limit := time.Second // as RFC 6298 (2.1), while no round trip is known
	if s.RTT > 0 {
		limit = max(100*time.Millisecond, s.RTT+4*s.RTTVar) + doubtAfter
	}
	silent := limit + 1 // never heard of: silent for ever
	if !s.Heard.IsZero() {
		silent = now.Sub(s.Heard)
	}
	waits := s.Waiting > limit && silent > min(limit, 100*time.Millisecond)
	switch {
	case silent > limit && s.Unanswered >= deadUnanswered:
		return Dead, fmt.Sprintf("%d probes in a row unanswered, %s", s.Unanswered, heard(s.Heard, silent))
	case silent > limit && s.Unanswered >= deadWithData && waits:
		return Dead, fmt.Sprintf("%d probes in a row unanswered and data unacknowledged for %s, %s", s.Unanswered, round(s.Waiting), heard(s.Heard, silent))
	case !s.Answers && s.Waiting > max(blindLeast, 3*limit) && silent > max(blindLeast, 3*limit):
		return Dead, fmt.Sprintf("data unacknowledged for %s, %s", round(s.Waiting), heard(s.Heard, silent))
	case waits:
		return Suspect, fmt.Sprintf("data unacknowledged for %s at a round trip of %s", round(s.Waiting), round(s.RTT))
	case s.Unanswered > 0:
		return Suspect, fmt.Sprintf("%d probes in a row unanswered", s.Unanswered)
	}
	return Alive, "alive"
}

func heard(at time.Time, silent time.Duration) string {
	if at.IsZero() {
		return "never heard of"
	}
	return fmt.Sprintf("silent for %s", round(silent))
}

func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
