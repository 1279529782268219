package paths

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fake is a kernel in memory.
type fake struct {
	wakes chan struct{}

	mu     sync.Mutex // guards what follows
	s      snapshot
	ours   installed
	fail   error // of apply
	reads  int
	closed bool
}

var _ kernel = (*fake)(nil)

func (f *fake) changed() <-chan struct{} { return f.wakes }

func (f *fake) read() (snapshot, installed, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	return f.s, f.ours, true, nil
}

func (f *fake) apply(_, want installed) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail == nil {
		f.ours = want
	}
	return f.fail
}

func (f *fake) relax([]Path) error { return nil }

func (f *fake) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return nil
}

func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fake) readsSoFar() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reads
}

func (f *fake) installed() installed {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ours
}

func (f *fake) wake() {
	select {
	case f.wakes <- struct{}{}:
	default:
	}
}

// start runs a Monitor over f; stop ends it and returns its log.
func start(t *testing.T, f *fake) (m *Monitor, stop func() string) {
	t.Helper()
	f.wakes = make(chan struct{}, 1)
	var log bytes.Buffer
	opt, err := Options{Patterns: []Pattern{{Interface: "wlan0"}}, Logger: slog.New(slog.NewTextHandler(&log, nil))}.normalise()
	if err != nil {
		t.Fatal(err)
	}
	m = newMonitor(opt, f)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	return m, func() string {
		cancel()
		if err := <-done; err != nil && f.fail == nil {
			t.Error(err)
		}
		return log.String()
	}
}

func wait(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// Wakes are taken in bunches, and what the kernel has not told is found all the
// same.
func TestRunSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		m, stop := start(t, f)
		wait(0)
		if got := f.readsSoFar(); got != 1 || m.Paths()[0].Reason != ReasonNoInterface {
			t.Fatalf("at first: got %d reads, %+v", got, m.Paths())
		}
		for range 1000 { // in a second
			f.wake()
			wait(time.Millisecond)
		}
		wait(settle)
		if got := f.readsSoFar(); got > 1+22 {
			t.Errorf("a second of changes: got %d reads, want at most one each %v", got, settle)
		}
		<-m.Changed()
		f.set(func() { f.s.links = []link{{index: 3, name: "wlan0"}} })
		wait(pollInterval)
		if got := m.Paths()[0].Reason; got != ReasonDown {
			t.Errorf("a change without a wake: got %q, want %q", got, ReasonDown)
		}
		select {
		case <-m.Changed():
		default:
			t.Error("the change was not told")
		}
		before := f.readsSoFar()
		wait(time.Hour)
		if got := f.readsSoFar() - before; got > 121 {
			t.Errorf("an idle hour: got %d reads, want one each %v", got, pollInterval)
		}
		stop()
		if len(f.ours.rules) != 0 || len(f.ours.routes) != 0 || !f.closed || m.Paths() != nil {
			t.Errorf("at the end: got %+v, closed %v, paths %v", f.ours, f.closed, m.Paths())
		}
	})
}

// An error that does not repeat itself is not worth a word; one that does is worth
// one, and is tried again.
func TestRunFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{fail: errors.New("interface just vanished")}
		m, stop := start(t, f)
		wait(0)
		f.set(func() { f.fail = nil })
		wait(time.Second)
		if len(f.installed().rules) == 0 {
			t.Error("not tried again")
		}
		f.set(func() { f.fail = errors.New("not permitted") })
		if err := m.RouteVia("wlan0", []netip.Addr{world4}); err == nil || !strings.Contains(err.Error(), "not permitted") {
			t.Errorf("route: got %v", err)
		}
		wait(10 * time.Minute)
		log := stop()
		if strings.Contains(log, "vanished") || strings.Count(log, "not permitted") != 1 {
			t.Errorf("log:\n%s", log)
		}
	})
}

func TestRouteViaWithoutRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opt, _ := Options{Patterns: []Pattern{{Interface: "wlan0"}}}.normalise()
		m := newMonitor(opt, &fake{})
		for _, c := range []struct {
			path string
			peer netip.Addr
			want string
		}{
			{"wlan0", world4, "see that it runs"},
			{"wlan1", world4, "no pattern"},
			{"wlan0", netip.Addr{}, "without address"},
		} {
			if err := m.RouteVia(c.path, []netip.Addr{c.peer}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s, %s: got %v, want %q", c.path, c.peer, err, c.want)
			}
		}
	})
}
