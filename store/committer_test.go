package store

import (
	"errors"
	"testing"

	"go.etcd.io/bbolt"

	"sluice/reading"
)

// A commit whose meta page was written, but whose last sync failed, is not
// written again, whatever is tried first: deletions alone, or the same commit.
func TestCommitThatFailedAfterAllIsNotDoubled(t *testing.T) {
	for _, deletesFirst := range []bool{false, true} {
		o := options(t)
		s := open(t, o)
		mustPut(t, s, batch(reading.Live, 0, 3))
		// The committer's work is done by the test from here on.
		s.closing.Do(func() {
			s.group.close()
			close(s.stop)
		})
		<-s.stopped

		es := []entry{{Batch: batch(reading.Live, 3, 3), ctx: t.Context(), bytes: 100}}
		p := s.c.planner.prepare(es, &s.c.state, s.c.receipts, &s.opt, 1<<20, 1<<20)
		var made change
		id, err := s.db.Load().update(func(tx *bbolt.Tx) error {
			var err error
			made, err = job{plan: p}.apply(tx, s.c.state)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		s.c.attempt, s.c.attemptPlan, s.c.attemptID = made, p, id

		if deletesFirst {
			s.acked[reading.Live].Store(3)
			if err := s.write(nil, 0); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if err := s.write(p, 0); err != nil {
				t.Fatal(err)
			}
		}
		if got, _ := drain(t, s, reading.Live, 3); len(got) != 3 {
			t.Errorf("deletions first %v: got %v, want 3 readings", deletesFirst, got)
		}
	}
}

// What waits when a store closes on a disk that refuses is refused, all of it.
func TestGroupBehindAFailingCommitIsRefused(t *testing.T) {
	s := open(t, options(t))
	mustPut(t, s, batch(reading.Live, 0, 1))
	results := make(chan error, 1)
	s.group.mu.Lock()
	s.group.entries = append(s.group.entries, entry{Batch: batch(reading.Live, 1, 1), ctx: t.Context(), done: func(err error) { results <- err }})
	s.group.mu.Unlock()
	s.refuse()
	if err := <-results; !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
}
