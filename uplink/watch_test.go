package uplink

import (
	"testing"
	"time"

	"sluice/reading"
)

// How long a frame stays with a carrier that does not deliver it.
func TestPatience(t *testing.T) {
	const ms = time.Millisecond
	steady := roundTrip{smoothed: 60 * ms}
	for _, c := range []struct {
		name      string
		lane      reading.Lane
		rtt       roundTrip
		overtaken bool
		want      time.Duration
	}{
		{"overtaken", reading.Alarm, steady, true, 90 * ms},
		{"overtaken on a short path", reading.Live, roundTrip{smoothed: 4 * ms}, true, 50 * ms},
		{"overtaken with jitter", reading.Live, roundTrip{smoothed: 60 * ms, deviation: 30 * ms}, true, 120 * ms},
		{"overtaken backfill", reading.Backfill, steady, true, 430 * ms},
		{"stalled", reading.Live, steady, false, time.Second},
		{"stalled on a long path", reading.Live, roundTrip{smoothed: time.Second}, false, 3 * time.Second},
	} {
		if got := patience(c.lane, c.rtt.usual(), c.rtt.most(), c.overtaken); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	var r roundTrip
	r.add(100 * time.Millisecond)
	for range 50 {
		r.add(100 * time.Millisecond)
	}
	if r.smoothed != 100*time.Millisecond || r.deviation > time.Millisecond {
		t.Errorf("steady: got %+v", r)
	}
	r.add(900 * time.Millisecond)
	if r.smoothed != 200*time.Millisecond || r.usual() > 600*time.Millisecond {
		t.Errorf("after one late answer: got %+v", r)
	}
}
