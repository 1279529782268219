package broker

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/ingest"
	"sluice/reading"
)

// groupSink commits what has gathered every few milliseconds, as the store
// does, and remembers receipts. While held, it commits nothing.
type groupSink struct {
	interval time.Duration
	wake     chan struct{}
	stop     chan struct{}
	stopped  chan struct{}

	mu         sync.Mutex
	cond       *sync.Cond
	held       bool
	fail       error // of every batch
	pending    []groupItem
	batches    []reading.Batch
	commits    int
	duplicates int
	receipts   map[string][]uint64
	discard    bool // keep no batches: a benchmark
}

type groupItem struct {
	batch reading.Batch
	done  func(error)
}

func newGroupSink(t testing.TB, interval time.Duration) *groupSink {
	s := &groupSink{
		interval: interval,
		wake:     make(chan struct{}, 1),
		stop:     make(chan struct{}),
		stopped:  make(chan struct{}),
		receipts: map[string][]uint64{},
	}
	s.cond = sync.NewCond(&s.mu)
	go s.run()
	t.Cleanup(func() { close(s.stop); <-s.stopped })
	return s
}

func (s *groupSink) Append(ctx context.Context, b reading.Batch, done func(error)) error {
	if ctx.Err() != nil {
		return ingest.ErrBusy
	}
	s.mu.Lock()
	s.pending = append(s.pending, groupItem{b, done})
	s.cond.Broadcast()
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return nil
}

func (s *groupSink) run() {
	defer close(s.stopped)
	var items []groupItem
	for {
		select {
		case <-s.wake:
		case <-s.stop:
			return
		}
		if s.interval > 0 {
			select {
			case <-time.After(s.interval):
			case <-s.stop:
				return
			}
		}
		s.mu.Lock()
		if s.held {
			s.mu.Unlock()
			continue
		}
		fail := s.fail
		items, s.pending = s.pending, items[:0]
		s.commits++
		for _, it := range items {
			if fail == nil {
				s.keep(it.batch)
			}
		}
		s.cond.Broadcast()
		s.mu.Unlock()
		for _, it := range items {
			it.done(fail)
		}
	}
}

func (s *groupSink) keep(b reading.Batch) {
	if s.discard {
		return
	}
	if r := b.Receipt; r.Sender != "" {
		if r.Repeat {
			for _, id := range s.receipts[r.Sender] {
				if id == r.ID {
					s.duplicates++
					return
				}
			}
		}
		s.receipts[r.Sender] = append(s.receipts[r.Sender], r.ID)
	}
	s.batches = append(s.batches, b)
}

func (s *groupSink) hold(on bool) {
	s.mu.Lock()
	s.held = on
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *groupSink) failWith(err error) {
	s.mu.Lock()
	s.fail = err
	s.mu.Unlock()
}

// count returns the number of commits.
func (s *groupSink) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.commits
}

// values returns what was stored, in order.
func (s *groupSink) values() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.valuesLocked()
}

func (s *groupSink) valuesLocked() []string {
	var vs []string
	for _, b := range s.batches {
		for _, r := range b.Readings {
			vs = append(vs, r.Value.Raw())
		}
	}
	return vs
}

// await waits until cond holds; cond runs with the sink locked.
func (s *groupSink) await(t testing.TB, what string, cond func() bool) {
	t.Helper()
	late := time.AfterFunc(10*time.Second, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cond.Broadcast()
	})
	defer late.Stop()
	end := time.Now().Add(10 * time.Second)
	s.mu.Lock()
	defer s.mu.Unlock()
	for !cond() {
		if time.Now().After(end) {
			t.Fatalf("sink: %s not seen in 10 s; stored %q, %d pending", what, s.valuesLocked(), len(s.pending))
		}
		s.cond.Wait()
	}
}

func (s *groupSink) awaitPending(t testing.TB, n int) {
	t.Helper()
	s.await(t, "pending", func() bool { return len(s.pending) == n })
}

func (s *groupSink) awaitValues(t testing.TB, want ...string) {
	t.Helper()
	s.await(t, strings.Join(want, ","), func() bool { return len(s.valuesLocked()) >= len(want) })
	if got := s.values(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Fatalf("stored: got %q, want %q", got, want)
	}
}

// textDecoder makes one reading of a payload.
type textDecoder struct{}

func (textDecoder) Decode(m ingest.Message) (reading.Batch, error) {
	switch string(m.Payload) {
	case "unusable":
		return reading.Batch{}, errors.New("record 3: no name")
	case "state":
		return reading.Batch{}, nil
	}
	return reading.Batch{Lane: reading.Live, Readings: []reading.Reading{{
		Device: m.Topic, Name: "text", Value: reading.Text(string(m.Payload)), Time: m.At,
	}}}, nil
}

func (textDecoder) Raw(m ingest.Message, reason string) reading.Batch {
	return reading.Batch{Lane: reading.Live, Readings: []reading.Reading{{
		Device: m.Topic, Name: reason, Value: reading.Text(string(m.Payload)), Time: m.At, Flags: reading.FlagRaw,
	}}}
}
