package collector

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"sluice/reading"
	"sluice/uplink/wire"
)

// asked is an Output that does something while it is asked for its last number,
// and holds what is written.
type asked struct {
	meanwhile func()

	mu   sync.Mutex // guards what follows
	last uint64
}

func (a *asked) Name() string { return "asked" }
func (a *asked) Close() error { return nil }

func (a *asked) Last(context.Context, Stream) (uint64, error) {
	a.mu.Lock()
	last := a.last
	a.mu.Unlock()
	if a.meanwhile != nil {
		a.meanwhile()
	}
	return last, nil
}

func (a *asked) Write(_ context.Context, _ Stream, after uint64, ds []Delivery) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if after != a.last {
		return ErrConflict
	}
	a.last = ds[len(ds)-1].Last()
	return nil
}

// A carrier that is superseded may have read a frame that it hands over only
// while the newer process's carrier joins: the answer of the outputs is old then.
func TestResumeWhileReceiving(t *testing.T) {
	out := new(asked)
	c := New(Options{Outputs: []Output{out}, Limits: DefaultLimits(), Logger: slog.New(slog.DiscardHandler)})
	s := newSession(c, wire.Hello{Gateway: "gw-1", Epoch: 1}).streams[reading.Live]
	srv := service{soft: t.Context(), hard: t.Context(), wg: new(sync.WaitGroup)}
	receive := func(first, last uint64) {
		data := reading.AppendBatch(nil, make([]reading.Reading, last-first+1))
		f := frame{bytes: len(data), link: &link{service: srv}, Data: wire.Data{Prev: first - 1, Through: last,
			Segments: []reading.Segment{{First: first, Count: int(last - first + 1), Data: data}}}}
		if err := s.receive(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		srv.wg.Wait() // until it is written
	}
	if _, err := s.resume(t.Context(), true, true); err != nil {
		t.Fatal(err)
	}
	receive(1, 10)
	out.meanwhile = func() { receive(11, 40) }
	got, err := s.resume(t.Context(), true, true)
	if want := (wire.Resume{Durable: 40, Received: 40}); err != nil || got != want {
		t.Errorf("resume: got %+v, %v, want %+v", got, err, want)
	}
	receive(11, 20)
	receive(21, 50)
	if st := s.stats(); st.Durable != 50 || st.Readings != 50 || st.Duplicates != 30 {
		t.Errorf("after all: %+v, want 50 readings, 30 of them twice", st)
	}
}
