package update

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// machine is a gateway's surroundings, as a Watch sees them.
type machine struct {
	dir   folder
	boot  uint64
	began time.Time

	mu    sync.Mutex // guards what follows
	acked uint64
	did   []string
	fails string // this fails
}

func (m *machine) do(what string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.did = append(m.did, what)
	if m.fails == what {
		return errors.New(what + " does not work")
	}
	return nil
}

func (m *machine) MarkGood(context.Context) error { return m.do("good") }
func (m *machine) MarkBad(context.Context) error  { return m.do("bad") }

// start boots the machine and returns its Watch, which runs until the test ends
// or stop is called.
func (m *machine) start(t *testing.T, slot string) (w *Watch, stop func()) {
	m.boot, m.acked, m.did, m.began = m.boot+1, 0, nil, time.Now()
	w = NewWatch(Options{Dir: string(m.dir), Slot: slot, Boot: m.boot, Marker: m, Logger: slog.New(slog.DiscardHandler),
		SinceBoot: func() time.Duration { return time.Since(m.began) },
		Acked: func() uint64 {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.acked
		},
		Announce: func(context.Context) error { return m.do("announce") },
		Reboot:   func(context.Context) error { return m.do("reboot") }})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	synctest.Wait()
	return w, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	}
}

func (m *machine) want(t *testing.T, want ...string) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Equal(m.did, want) {
		t.Errorf("got %q, want %q", m.did, want)
	}
}

func (m *machine) fail(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fails = what
}

func (m *machine) acknowledge() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.acked++
}

// pass lets time go by.
func pass(d time.Duration) {
	time.Sleep(d) // in a bubble: it takes no time
	synctest.Wait()
}

func TestWatch(t *testing.T) {
	begun := func(t *testing.T) *machine {
		m := &machine{dir: folder(filepath.Join(t.TempDir(), "update")), boot: 7}
		if err := m.dir.begin(Trial{From: "A", Boot: 7, Version: "2"}); err != nil {
			t.Fatal(err)
		}
		return m
	}
	inTime := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
	}
	inTime("without a trial, each boot is confirmed once", func(t *testing.T) {
		m := &machine{dir: folder(t.TempDir())}
		w, stop := m.start(t, "A")
		defer stop()
		pass(time.Hour)
		m.want(t, "good")
		if got := w.Snapshot(); got != (Snapshot{}) {
			t.Errorf("got %+v, want nothing", got)
		}
	})
	inTime("confirmed by delivering", func(t *testing.T) {
		m := begun(t)
		w, stop := m.start(t, "B")
		pass(19 * time.Minute)
		m.want(t, "announce")
		if got := w.Snapshot(); got.Trial != "2" || !got.Since.Equal(m.began) || !strings.Contains(got.Reason, "on trial") {
			t.Errorf("got %+v, want a trial since %v", got, m.began)
		}
		m.acknowledge()
		pass(lookEvery)
		m.want(t, "announce", "good")
		if got := w.Snapshot(); got.Trial != "" || got.Last == nil || !got.Last.OK || got.Last.Version != "2" {
			t.Errorf("got %+v, want that 2 is confirmed", got)
		}
		pass(time.Hour)
		m.want(t, "announce", "good")
		stop()
		w, stop = m.start(t, "B")
		defer stop()
		m.want(t, "good")
		if got := w.Snapshot(); got.Last == nil || !got.Last.OK {
			t.Errorf("got %+v, want that 2 is confirmed", got)
		}
	})
	inTime("given up in silence", func(t *testing.T) {
		m := begun(t)
		w, stop := m.start(t, "B")
		m.fail("bad") // the boot loader goes back all the same
		pass(trialTime)
		m.want(t, "announce", "bad", "reboot")
		pass(time.Hour)
		if got := w.Snapshot(); got.Trial != "2" || !strings.Contains(got.Reason, "does not work") || len(m.did) < 60 {
			t.Errorf("got %+v and %d tries, want many", got, len(m.did))
		}
		stop()
		w, stop = m.start(t, "A")
		defer stop()
		if got := w.Snapshot(); got.Trial != "" || got.Last == nil || got.Last.OK || !strings.Contains(got.Last.Reason, "no reading within 20 minutes") {
			t.Errorf("got %+v, want why 2 failed", got)
		}
		pass(lookEvery)
		m.want(t, "good")
	})
	inTime("installed, then a boot of the old system", func(t *testing.T) {
		m := begun(t)
		m.boot--
		w, stop := m.start(t, "A")
		pass(time.Hour)
		m.want(t)
		if got := w.Snapshot(); got.Trial != "2" || !got.Since.IsZero() {
			t.Errorf("got %+v, want one that waits", got)
		}
		stop()
		w, stop = m.start(t, "A")
		defer stop()
		if got := w.Snapshot(); got.Last == nil || got.Last.OK {
			t.Errorf("got %+v, want that 2 failed", got)
		}
	})
	inTime("the mark is tried again, once a minute", func(t *testing.T) {
		m := begun(t)
		m.fail("good")
		w, stop := m.start(t, "B")
		defer stop()
		m.acknowledge()
		pass(againIn + 2*lookEvery)
		m.want(t, "announce", "good", "good")
		if got := w.Snapshot(); got.Trial != "2" || !strings.Contains(got.Reason, "good does not work") {
			t.Errorf("got %+v, want why it is not confirmed", got)
		}
		m.fail("")
		pass(againIn)
		if got := w.Snapshot(); got.Trial != "" || got.Last == nil || !got.Last.OK || got.Reason != "" {
			t.Errorf("got %+v, want that 2 is confirmed", got)
		}
	})
	inTime("a damaged trial is forgotten", func(t *testing.T) {
		m := &machine{dir: folder(t.TempDir())}
		writeFile(t, m.dir.path("trial.json"), "{")
		_, stop := m.start(t, "A")
		defer stop()
		pass(time.Hour)
		m.want(t, "good")
	})
}
