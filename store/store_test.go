package store

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"

	"sluice/reading"
)

// options are those of most tests: commits come at once, nothing is near a limit.
func options(t testing.TB) Options {
	t.Helper()
	return Options{
		Path:           filepath.Join(t.TempDir(), "queue.db"),
		Quota:          1 << 30,
		Policy:         Reject,
		CommitInterval: time.Millisecond,
	}
}

// open opens a store that is closed, and checked from end to end, when the test
// is over.
func open(t testing.TB, o Options) *Store {
	t.Helper()
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		checkFile(t, o.Path)
	})
	return s
}

// checkFile runs bbolt's consistency check and ours.
func checkFile(t testing.TB, path string) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, PreLoadFreelist: true, Timeout: time.Second})
	if err != nil {
		t.Errorf("open %s for its check: %v", path, err)
		return
	}
	defer db.Close()
	if err := db.View(func(tx *bbolt.Tx) error {
		var errs []error
		for err := range tx.Check() {
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	}); err != nil {
		t.Errorf("bbolt's check: %v", err)
	}
	r, err := Check(path)
	if err != nil {
		t.Error(err)
	}
	for _, p := range r.Problems {
		t.Errorf("check: %s", p)
	}
}

// numbered returns n readings whose values are from, from+1, and so on.
func numbered(from, n int) []reading.Reading {
	rs := make([]reading.Reading, n)
	for i := range rs {
		rs[i] = reading.Reading{
			Device: "kitchen/lamp", Name: "count", Value: reading.Int(int64(from + i)),
			Time: reading.Time{Wall: 1_700_000_000_000_000_000 + int64(from+i)*1e9},
		}
	}
	return rs
}

func batch(lane reading.Lane, from, n int) reading.Batch {
	return reading.Batch{Lane: lane, Readings: numbered(from, n)}
}

// put appends b and waits until it is durable or refused.
func put(t testing.TB, s *Store, b reading.Batch) error {
	t.Helper()
	result := make(chan error, 1)
	if err := s.Append(t.Context(), b, func(err error) { result <- err }); err != nil {
		return err
	}
	select {
	case err := <-result:
		return err
	case <-time.After(30 * time.Second):
		t.Fatal("done was not called within 30 s")
		return nil
	}
}

func mustPut(t testing.TB, s *Store, b reading.Batch) {
	t.Helper()
	if err := put(t, s, b); err != nil {
		t.Fatal(err)
	}
}

// drain reads a lane from after on, as values in order; it checks that the
// sequence numbers ascend.
func drain(t testing.TB, s *Store, lane reading.Lane, after uint64) (values []string, last uint64) {
	t.Helper()
	for {
		segs, err := s.Next(lane, after, 64<<10)
		if err != nil {
			t.Fatal(err)
		}
		if len(segs) == 0 {
			return values, after
		}
		for _, seg := range segs {
			if seg.First <= after && after != 0 && seg.Last() <= after {
				t.Fatalf("segment %d to %d read behind %d", seg.First, seg.Last(), after)
			}
			rs, err := reading.DecodeBatch(seg.Data)
			if err != nil {
				t.Fatal(err)
			}
			if len(rs) != seg.Count {
				t.Fatalf("segment %d: %d readings, want %d", seg.First, len(rs), seg.Count)
			}
			for _, r := range rs {
				values = append(values, r.Value.Raw())
			}
			after = seg.Last()
		}
	}
}

// want is the values of numbered readings.
func want(from, n int) []string {
	var vs []string
	for _, r := range numbered(from, n) {
		vs = append(vs, r.Value.Raw())
	}
	return vs
}

func equal(t testing.TB, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %d values, want %d: %s", what, len(got), len(want), firstDifference(got, want))
	}
}

func firstDifference(got, want []string) string {
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			return fmt.Sprintf("at %d got %q, want %q", i, got[min(i, len(got)):min(i+5, len(got))], want[min(i, len(want)):min(i+5, len(want))])
		}
	}
	return "equal"
}

// Accepted means durable, in order, for every lane; and what is not acknowledged
// is there after closing and opening again (F2).
func TestAppendSurvivesReopening(t *testing.T) {
	o := options(t)
	s := open(t, o)
	for i := range 12 {
		for lane := range reading.Lane(reading.Lanes) {
			mustPut(t, s, batch(lane, 100*i, 6))
		}
	}
	epoch := s.Epoch()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, o)
	if s.Epoch() != epoch || epoch == 0 {
		t.Errorf("epoch %x after reopening, want %x", s.Epoch(), epoch)
	}
	for lane := range reading.Lane(reading.Lanes) {
		got, last := drain(t, s, lane, 0)
		var expect []string
		for i := range 12 {
			expect = append(expect, want(100*i, 6)...)
		}
		equal(t, lane.String(), got, expect)
		if last != 72 {
			t.Errorf("lane %v ends at %d, want 72", lane, last)
		}
		if st := s.Stats().Lanes[lane]; st.Readings != 72 || st.Next != 73 || st.Oldest == 0 || st.Bytes == 0 {
			t.Errorf("lane %v: %+v", lane, st)
		}
	}
}

// Sequence numbers never go back, also when everything was delivered and the
// file is opened anew.
func TestSequenceNeverGoesBack(t *testing.T) {
	o := options(t)
	for round := range 5 {
		s := open(t, o)
		mustPut(t, s, batch(reading.Live, 10*round, 10))
		got, last := drain(t, s, reading.Live, 0)
		equal(t, "live", got, want(10*round, 10))
		if last != uint64(10*round+10) {
			t.Errorf("round %d: last is %d, want %d", round, last, 10*round+10)
		}
		s.Ack(reading.Live, last)
		if st := s.Stats().Lanes[reading.Live]; st.Readings != 0 {
			t.Errorf("round %d: backlog of %d after everything was acknowledged", round, st.Readings)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if st, err := Stat(o.Path); err != nil || st.Lanes[reading.Live].Readings != 0 || st.Lanes[reading.Live].Acked != last {
			t.Errorf("round %d: on disk %+v, %v", round, st.Lanes[reading.Live], err)
		}
	}
}

// The far end has numbers that an old copy of the file never gave: they are not
// given again.
func TestOldCopyDoesNotReuseNumbers(t *testing.T) {
	s := open(t, options(t))
	mustPut(t, s, batch(reading.Live, 0, 3))
	s.Ack(reading.Live, 1000)
	mustPut(t, s, batch(reading.Live, 3, 3))
	segs, err := s.Next(reading.Live, 1000, 1)
	if err != nil || len(segs) != 1 || segs[0].First != 1001 {
		t.Errorf("got %v, %v, want one segment from 1001", segs, err)
	}
}

// Batches that wait together are stored as one value a lane, in order.
func TestGroupIsMerged(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.CommitInterval = 10 * time.Second
	s := open(t, o)
	var group sync.WaitGroup
	var mu sync.Mutex
	var order []int
	for i := range 15 {
		group.Add(1)
		if err := s.Append(t.Context(), batch(reading.Live, 6*i, 6), func(err error) {
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			group.Done()
		}); err != nil {
			t.Fatal(err)
		}
	}
	group.Wait()
	if !slices.IsSorted(order) {
		t.Errorf("done in the order %v", order)
	}
	segs, err := s.Next(reading.Live, 0, 1<<20)
	if err != nil || len(segs) != 1 || segs[0].Count != 90 {
		t.Errorf("got %d segments, %v, want one of 90 readings", len(segs), err)
	}
	if n := s.Stats().Commits; n != 1 {
		t.Errorf("%d commits, want 1", n)
	}
}

// A batch larger than a value is split, and stays in order.
func TestLargeBatchIsSplit(t *testing.T) {
	s := open(t, options(t))
	mustPut(t, s, batch(reading.Backfill, 0, 10_000))
	segs, err := s.Next(reading.Backfill, 0, 10<<20)
	if err != nil || len(segs) != 3 {
		t.Fatalf("%d segments, %v, want 3", len(segs), err)
	}
	got, _ := drain(t, s, reading.Backfill, 0)
	equal(t, "backfill", got, want(0, 10_000))

	// From the middle of a segment its whole is read.
	segs, err = s.Next(reading.Backfill, 5000, 1)
	if err != nil || len(segs) != 1 || segs[0].First != 4097 || segs[0].Last() != 8192 {
		t.Errorf("got %v, %v", segs, err)
	}
	// A part acknowledged deletes no whole.
	s.Ack(reading.Backfill, 5000)
	mustPut(t, s, batch(reading.Backfill, 10_000, 1))
	if got, _ := drain(t, s, reading.Backfill, 0); len(got) != 10_001-4096 {
		t.Errorf("%d readings left, want %d", len(got), 10_001-4096)
	}
}

// Live is stored as Backfill while the uplink does not deliver (F3).
func TestLiveBecomesBackfill(t *testing.T) {
	delivering := true
	o := options(t)
	o.Delivering = func() bool { return delivering }
	s := open(t, o)
	mustPut(t, s, batch(reading.Live, 0, 1))
	s.Close()
	delivering = false
	s = open(t, o)
	mustPut(t, s, batch(reading.Live, 1, 1))
	mustPut(t, s, batch(reading.Alarm, 2, 1))
	for lane, expect := range [][]string{{"2"}, {"0"}, {"1"}} {
		got, _ := drain(t, s, reading.Lane(lane), 0)
		equal(t, reading.Lane(lane).String(), got, expect)
	}
}

// A delivery that comes again is kept once: while the first waits, after it is
// stored, and after reopening.
func TestRepeatedDeliveryIsKeptOnce(t *testing.T) {
	o := options(t)
	s := open(t, o)
	b := batch(reading.Live, 0, 6)
	b.Receipt = reading.Receipt{Sender: "push:roof", ID: 42, Keep: 3, Repeat: true}
	results := make(chan error, 2)
	for range 2 {
		if err := s.Append(t.Context(), b, func(err error) { results <- err }); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := <-results; err != nil {
			t.Fatal(err)
		}
	}
	mustPut(t, s, b)
	if st := s.Stats(); st.Duplicates != 2 || st.Appended != 6 {
		t.Errorf("%d duplicates, %d appended, want 2, 6", st.Duplicates, st.Appended)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, o)
	mustPut(t, s, b)
	got, _ := drain(t, s, reading.Live, 0)
	equal(t, "live", got, want(0, 6))

	// The fourth delivery after it pushes it out of a memory of three.
	for id := range uint64(3) {
		c := batch(reading.Live, 10, 1)
		c.Receipt = reading.Receipt{Sender: "push:roof", ID: id, Keep: 3}
		mustPut(t, s, c)
	}
	mustPut(t, s, b)
	if got, _ := drain(t, s, reading.Live, 0); len(got) != 15 {
		t.Errorf("%d readings, want 15", len(got))
	}
}

// While the disk lags, Append waits for its context and then says so.
func TestAppendWaitsForRoom(t *testing.T) {
	t.Parallel()
	s := open(t, options(t))
	release := make(chan struct{})
	if err := s.Append(t.Context(), batch(reading.Alarm, 0, 1), func(error) { <-release }); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	accepted, finished := 0, make(chan error, 1000)
	var err error
	for err == nil {
		if err = s.Append(ctx, batch(reading.Live, 0, 1000), func(err error) { finished <- err }); err == nil {
			accepted++
		}
	}
	if !errors.Is(err, ErrBusy) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want ErrBusy", err)
	}
	if accepted == 0 || accepted > 2*maxWaitingReadings/1000 {
		t.Errorf("%d batches of 1000 readings accepted", accepted)
	}
	close(release)
	for range accepted {
		if err := <-finished; err != nil {
			t.Error(err)
		}
	}
	if got, _ := drain(t, s, reading.Live, 0); len(got) != 1000*accepted {
		t.Errorf("%d readings stored, want %d", len(got), 1000*accepted)
	}
}

func TestClosedStoreRefuses(t *testing.T) {
	s := open(t, options(t))
	s.Close()
	if err := s.Append(t.Context(), batch(reading.Live, 0, 1), nil); !errors.Is(err, ErrClosed) {
		t.Errorf("append: %v", err)
	}
	if _, err := s.Next(reading.Live, 0, 1); !errors.Is(err, ErrClosed) {
		t.Errorf("next: %v", err)
	}
}

func TestSecondProcessIsRefused(t *testing.T) {
	o := options(t)
	open(t, o)
	if _, err := Open(o); !errors.Is(err, ErrInUse) {
		t.Errorf("open: %v", err)
	}
	if _, err := Check(o.Path); !errors.Is(err, ErrInUse) {
		t.Errorf("check: %v", err)
	}
}

func TestOptionsAreRefusedTogether(t *testing.T) {
	_, err := Open(Options{Quota: 1, Policy: "sometimes"})
	for _, part := range []string{"path", "quota 1", `policy "sometimes"`} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v: does not name %s", err, part)
		}
	}
}

// At ten batches a second one commit an interval is made; a lone batch after a
// quiet time waits an eighth.
func TestCommitsAreSpaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(t)
		o.CommitInterval = time.Second
		s := open(t, o)
		start := time.Now()
		mustPut(t, s, batch(reading.Live, 0, 6))
		if d := time.Since(start); d != 125*time.Millisecond {
			t.Errorf("a lone batch waited %v, want 125ms", d)
		}
		<-time.After(3 * time.Second)
		before := s.Stats().Commits
		for i := range 100 {
			if err := s.Append(t.Context(), batch(reading.Live, i, 6), func(error) {}); err != nil {
				t.Fatal(err)
			}
			<-time.After(100 * time.Millisecond)
		}
		if n := s.Stats().Commits - before; n < 9 || n > 11 {
			t.Errorf("%d commits in 10 s, want about 10", n)
		}
		// An alarm waits for nothing.
		start = time.Now()
		mustPut(t, s, batch(reading.Alarm, 0, 1))
		if d := time.Since(start); d != 0 {
			t.Errorf("an alarm waited %v", d)
		}
		// An acknowledgement by itself is written after a while.
		before = s.Stats().Commits
		s.Ack(reading.Live, 606)
		<-time.After(ackWait - time.Millisecond)
		if n := s.Stats().Commits - before; n != 0 {
			t.Errorf("%d commits for an acknowledgement, too early", n)
		}
		<-time.After(2 * time.Millisecond)
		if n := s.Stats().Commits - before; n != 1 {
			t.Errorf("%d commits for an acknowledgement, want 1", n)
		}
		if s.Close() != nil {
			t.Error("close")
		}
	})
}
