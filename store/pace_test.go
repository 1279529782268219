package store

import (
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	p := pace{interval: 800 * time.Millisecond, bytes: 1000}
	for _, test := range []struct {
		name  string
		q     pressure
		last  time.Time
		want  time.Time
		waits bool
	}{
		{"nothing", pressure{}, at(0), time.Time{}, false},
		{"a lone batch after a quiet time", pressure{batches: 1, bytes: 9, first: at(5000), latest: at(5000)}, at(0), at(5100), true},
		{"one in a steady flow", pressure{batches: 1, bytes: 9, first: at(100), latest: at(100)}, at(0), at(800), true},
		{"no longer than an interval", pressure{batches: 1, bytes: 9, first: at(100), latest: at(100)}, at(500), at(900), true},
		{"a full group", pressure{batches: 2, bytes: 1000, first: at(100), latest: at(110)}, at(90), at(100), true},
		{"full windows", pressure{batches: busyBatches, bytes: 500, first: at(100), latest: at(110)}, at(90), at(112), true},
		{"many, but slowly", pressure{batches: 50, bytes: 500, first: at(100), latest: at(600)}, at(90), at(890), true},
		{"an alarm", pressure{batches: 1, urgent: true, first: at(100), latest: at(100)}, at(90), time.Time{}, true},
		{"an acknowledgement alone", pressure{acked: 5, ackedSince: at(100)}, at(90), at(5100), true},
		{"many acknowledgements", pressure{acked: ackReadings, ackedSince: at(100)}, at(90), at(100), true},
		{"an acknowledgement travels along", pressure{batches: 1, first: at(200), latest: at(200), acked: 5, ackedSince: at(100)}, at(0), at(800), true},
	} {
		got, waits := p.next(test.q, test.last)
		if !got.Equal(test.want) || waits != test.waits {
			t.Errorf("%s: got %v, %v, want %v, %v", test.name, got.Sub(start), waits, test.want.Sub(start), test.waits)
		}
	}
}
