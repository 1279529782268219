package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"sluice/reading"
)

// bulky is a batch whose one reading takes n bytes.
func bulky(lane reading.Lane, mark string, n int) reading.Batch {
	return reading.Batch{Lane: lane, Readings: []reading.Reading{
		{Device: "d", Name: "n", Value: reading.Text(mark + strings.Repeat("x", n-len(mark)))},
	}}
}

// marks are the values of bulky batches, without their bulk.
func marks(values []string) []string {
	for i, v := range values {
		values[i] = strings.TrimRight(v, "x")
	}
	return values
}

// What a sender has appended behind something that was refused is refused as
// well once the sender says so, though there is room again; alarms are not, nor
// what a sender leaves behind who has only gone away.
func TestNothingOvertakesWhatWasRefused(t *testing.T) {
	s := open(t, options(t))
	told := errors.New("an earlier one was refused")
	for _, test := range []struct {
		name string
		lane reading.Lane
		with error // that the sender cancels with
		want error
	}{
		{"telemetry", reading.Live, told, told},
		{"backfill", reading.Backfill, told, told},
		{"alarm", reading.Alarm, told, nil},
		{"gone away", reading.Live, nil, nil},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(test.with)
		result := make(chan error, 1)
		if err := s.Append(ctx, batch(test.lane, 0, 1), func(err error) { result <- err }); err != nil {
			t.Fatal(err)
		}
		if err := <-result; !errors.Is(err, test.want) {
			t.Errorf("%s: got %v, want %v", test.name, err, test.want)
		}
	}
	if got := s.Stats().Refused; got != 2 {
		t.Errorf("refused: got %d, want 2", got)
	}
}

// At the quota new telemetry is refused and nothing durable goes; alarms still
// find room; and when the link is back, everything drains and the space is used
// again (F8, F10).
func TestRejectAtTheQuota(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Quota = 2 << 20
	s := open(t, o)
	var stored []string
	for round := range 2 {
		stored = nil
		for i := 0; ; i++ {
			mark := fmt.Sprintf("%d-%d.", round, i)
			err := put(t, s, bulky(reading.Backfill, mark, 20_000))
			if errors.Is(err, ErrFull) {
				if !strings.Contains(err.Error(), "2097152") {
					t.Errorf("%v: does not name the quota", err)
				}
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			stored = append(stored, mark)
		}
		if len(stored) < 60 {
			t.Errorf("round %d: full after %d batches of 20 kB", round, len(stored))
		}
		for i := range 3 {
			mustPut(t, s, bulky(reading.Alarm, fmt.Sprint("a", i), 20_000))
		}
		st := s.Stats()
		if st.UsedBytes > o.Quota || st.FileBytes > o.Quota+o.Quota/4 {
			t.Errorf("round %d: %d bytes used, file %d, quota %d", round, st.UsedBytes, st.FileBytes, o.Quota)
		}
		if st.Refused != uint64(round+1) {
			t.Errorf("round %d: %d refused", round, st.Refused)
		}
		got, last := drain(t, s, reading.Backfill, 0)
		equal(t, "backfill", marks(got), stored)
		alarms, lastAlarm := drain(t, s, reading.Alarm, 0)
		if len(alarms) != 3 {
			t.Errorf("round %d: %d alarms", round, len(alarms))
		}
		s.Ack(reading.Backfill, last)
		s.Ack(reading.Alarm, lastAlarm)
		mustPut(t, s, batch(reading.Live, 0, 1))
	}
}

// With drop-oldest the oldest backfill makes way, then live, and alarms stay;
// what went is counted, also after reopening (F8).
func TestDropOldestAtTheQuota(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Quota = 2 << 20
	o.Policy = DropOldest
	s := open(t, o)
	for i := range 10 {
		mustPut(t, s, bulky(reading.Alarm, fmt.Sprintf("a%d.", i), 20_000))
	}
	for i := range 30 {
		mustPut(t, s, bulky(reading.Backfill, fmt.Sprintf("b%d.", i), 20_000))
	}
	for i := range 150 {
		mustPut(t, s, bulky(reading.Live, fmt.Sprintf("l%d.", i), 20_000))
		if st := s.Stats(); st.UsedBytes > o.Quota {
			t.Fatalf("%d bytes used, quota %d", st.UsedBytes, o.Quota)
		}
	}
	check := func() {
		t.Helper()
		if got, _ := drain(t, s, reading.Alarm, 0); len(got) != 10 {
			t.Errorf("%d alarms left, want 10", len(got))
		}
		backfill, _ := drain(t, s, reading.Backfill, 0)
		live, last := drain(t, s, reading.Live, 0)
		if len(backfill) != 0 || len(live) < 50 || last != 150 {
			t.Errorf("%d of backfill, %d of live up to %d left", len(backfill), len(live), last)
		}
		if marks(live); live[len(live)-1] != "l149." {
			t.Errorf("the newest is %q", live[len(live)-1])
		}
		st := s.Stats()
		if r := st.Lanes[reading.Backfill].Removed; r != 30 {
			t.Errorf("%d of backfill counted as removed, want 30", r)
		}
		if r := st.Lanes[reading.Live].Removed; r != uint64(150-len(live)) {
			t.Errorf("%d of live counted as removed, want %d", r, 150-len(live))
		}
		if st.Lanes[reading.Alarm].Removed != 0 {
			t.Error("alarms were removed")
		}
	}
	check()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, o)
	check()
	if err := put(t, s, bulky(reading.Live, "", 5<<20)); !errors.Is(err, ErrFull) {
		t.Errorf("a batch above the quota: %v", err)
	}
	check()
}

// A large batch makes way for itself among small ones, however many those are.
func TestDropOldestKeepsTheQuota(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Quota = 2 << 20
	o.Policy = DropOldest
	s := open(t, o)
	for i := range 400 {
		mustPut(t, s, bulky(reading.Live, fmt.Sprintf("%d.", i), ownBucket+1))
	}
	mustPut(t, s, bulky(reading.Live, "large.", 1_500_000))
	st := s.Stats()
	if st.UsedBytes > o.Quota {
		t.Errorf("%d bytes used, quota %d", st.UsedBytes, o.Quota)
	}
	if got, _ := drain(t, s, reading.Live, 0); len(got) < 50 || marks(got)[len(got)-1] != "large." {
		t.Errorf("%d readings left", len(got))
	}
}
