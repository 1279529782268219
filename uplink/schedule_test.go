package uplink

import (
	"testing"
	"time"

	"sluice/reading"
)

func TestScheduleNext(t *testing.T) {
	now := time.Unix(1000, 0)
	s := schedule{flush: time.Second, frameMax: 256 << 10, window: 1 << 20}
	const slow = 32_000.0 // frames of 4 KB, the least
	for _, c := range []struct {
		name  string
		rate  float64
		lanes [reading.Lanes]waiting
		want  decision
	}{
		{"nothing", slow, [reading.Lanes]waiting{}, decision{}},
		{"alarm first and at once", slow,
			[reading.Lanes]waiting{{bytes: 1, since: now}, {bytes: 9000, since: now}, {bytes: 9000, since: now}},
			decision{send: true, lane: reading.Alarm, size: 4096}},
		{"live waits for company, backfill does not wait for live", slow,
			[reading.Lanes]waiting{{}, {bytes: 10, since: now}, {bytes: 10, since: now}},
			decision{send: true, lane: reading.Backfill, size: 4096}},
		{"live waits", slow,
			[reading.Lanes]waiting{{}, {bytes: 10, since: now.Add(-400 * time.Millisecond)}, {}},
			decision{wakeAt: now.Add(600 * time.Millisecond)}},
		{"live is due", slow,
			[reading.Lanes]waiting{{}, {bytes: 10, since: now.Add(-time.Second)}, {bytes: 9000, since: now}},
			decision{send: true, lane: reading.Live, size: 4096}},
		{"a full live frame goes", slow,
			[reading.Lanes]waiting{{}, {bytes: 4096, since: now}, {}},
			decision{send: true, lane: reading.Live, size: 4096}},
		{"what was lost goes at once", slow,
			[reading.Lanes]waiting{{}, {again: true, since: now}, {}},
			decision{send: true, lane: reading.Live, size: 4096}},
		{"unknown rate", 0,
			[reading.Lanes]waiting{{}, {}, {bytes: 99999}},
			decision{send: true, lane: reading.Backfill, size: frameLeast}},
		{"fast link", 1e9,
			[reading.Lanes]waiting{{}, {}, {bytes: 99999}},
			decision{send: true, lane: reading.Backfill, size: 256 << 10}},
		{"backfill leaves the last quarter of the window", slow,
			[reading.Lanes]waiting{{}, {}, {bytes: 9999, flight: 3 << 18}},
			decision{}},
		{"which live may use", slow,
			[reading.Lanes]waiting{{}, {bytes: 9999}, {bytes: 9999, flight: 3 << 18}},
			decision{send: true, lane: reading.Live, size: 4096}},
		{"and an alarm to the end", slow,
			[reading.Lanes]waiting{{bytes: 50}, {bytes: 9999, flight: 1 << 17}, {bytes: 9999, flight: 3 << 18}},
			decision{send: true, lane: reading.Alarm, size: 4096}},
		{"full window", slow,
			[reading.Lanes]waiting{{bytes: 50}, {bytes: 50}, {bytes: 9999, flight: 1 << 20}},
			decision{}},
	} {
		got := s.next(now, c.rate, c.lanes)
		if c.name == "and an alarm to the end" {
			got.size = min(got.size, 4096)
		}
		if got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}

// F7: a window smaller than any frame still lets one through at a time.
func TestScheduleTinyWindow(t *testing.T) {
	s := schedule{frameMax: 64 << 10, window: 100}
	lanes := [reading.Lanes]waiting{{}, {bytes: 5000}, {}}
	if got := s.next(time.Time{}, 0, lanes); !got.send || got.size > 100 {
		t.Errorf("empty window: got %+v, want a frame of at most 100 bytes", got)
	}
	lanes[reading.Backfill].flight = 60
	if got := s.next(time.Time{}, 0, lanes); got.send {
		t.Errorf("window in use: got %+v, want to wait", got)
	}
}

func TestBackoff(t *testing.T) {
	var b backoff
	for i, want := range []time.Duration{100, 200, 400, 800, 1600, 3200, 6400, 12800, 15000, 15000} {
		if got := b.next(0.5); got != want*time.Millisecond {
			t.Errorf("failure %d: got %v, want %v", i+1, got, want*time.Millisecond)
		}
	}
	for range 1000 {
		if got := b.next(0.999); got > backoffMost {
			t.Fatalf("got %v, above the cap", got)
		}
	}
	b.reset()
	if got := b.next(0); got != backoffLeast {
		t.Errorf("unlucky draw after a reset: got %v, want %v", got, backoffLeast)
	}
}

func TestMeter(t *testing.T) {
	now := time.Unix(1000, 0)
	var m meter
	if m.rate() != 0 {
		t.Errorf("at first: got %v, want 0", m.rate())
	}
	// Ten frames of 1000 bytes, sent together, acknowledged every 10 ms.
	var sent []sample
	for i := range 10 {
		sent = append(sent, m.sent(now, i == 0))
	}
	for i, s := range sent {
		m.acked(now.Add(time.Duration(i+1)*10*time.Millisecond), 1000, s, false)
	}
	if got := m.rate(); got < 99_000 || got > 101_000 {
		t.Errorf("1000 bytes each 10 ms: got %.0f a second", got)
	}
	// Acks that were held up and come at once do not make the link faster.
	sent = sent[:0]
	for i := range 10 {
		now = now.Add(10 * time.Millisecond)
		sent = append(sent, m.sent(now, i == 0))
	}
	now = now.Add(time.Second)
	for i, s := range sent {
		m.acked(now, 1000, s, false)
		if i < 5 {
			sent = append(sent, m.sent(now, false))
		}
	}
	for i := range 5 {
		m.acked(now.Add(2*time.Millisecond), 1000, sent[10+i], false)
	}
	if got := m.rate(); got > 101_000 {
		t.Errorf("acks in a bunch: got %.0f a second, want no more than before", got)
	}
	// A pause is no measure of the link; a slower sample counts once the best is old.
	now = now.Add(time.Minute)
	s := m.sent(now, true)
	m.acked(now.Add(100*time.Millisecond), 1000, s, false)
	if got := m.rate(); got < 9_900 || got > 10_100 {
		t.Errorf("after a pause: got %.0f a second, want 10000", got)
	}
}
