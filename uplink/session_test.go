package uplink

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"sluice/reading"
	"sluice/uplink/wire"
)

// silent is a carrier that takes everything and says nothing.
type silent struct {
	net.Conn
}

func newSilent() silent {
	near, far := net.Pipe()
	go io.Copy(io.Discard, far)
	return silent{near}
}

func (silent) Peer() string    { return "collector" }
func (silent) Info() Info      { return Info{Kind: "silent"} }
func (silent) LimitUnsent(int) {}

// one is a queue of one reading.
type one struct{}

func (one) Epoch() uint64            { return 1 }
func (one) Ack(reading.Lane, uint64) {}
func (one) Changed() <-chan struct{} { return nil }
func (one) Next(lane reading.Lane, after uint64, _ int) ([]reading.Segment, error) {
	if lane != reading.Alarm || after > 0 {
		return nil, nil
	}
	return []reading.Segment{segment(1, 1, 0)}, nil
}

// twoCarriers returns a session with two carriers to one collector.
func twoCarriers(t *testing.T) (s *session, a, b *link) {
	s = newSession(New(Options{Queue: one{}, MaxFrame: 4096,
		Keepalive: time.Minute, AckTimeout: 15 * time.Second, Logger: slog.New(slog.DiscardHandler)}))
	for _, l := range []**link{&a, &b} {
		*l = joining(t, s)
		if err := s.join(time.Now(), *l, wire.Welcome{Version: 1, MaxFrame: 1 << 20, MaxUnacked: 1 << 20, Instance: 5}); err != nil {
			t.Fatal(err)
		}
	}
	return s, a, b
}

// finish ends the carriers.
func finish(s *session) {
	for len(s.links) > 0 {
		s.leave(time.Now(), s.links[0], errShutdown)
	}
	close(s.ended)
	s.wg.Wait()
}

func joining(t *testing.T, s *session) *link {
	c := newSilent()
	l, err := newLink(c, wire.NewReader(c, wire.MaxControl), "collector", s.opt.Queue.Epoch())
	if err != nil {
		t.Fatal(err)
	}
	l.slot = &slot{cancel: func() {}}
	l.slot.take(Slot{Dialers: make([]Dialer, 1)})
	s.slots = append(s.slots, l.slot)
	return l
}

// Of several carriers, the one that delivers nothing is given up, and the others
// carry what it had.
func TestExpireOneOfTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a, b := twoCarriers(t)
		s.feed(time.Now())
		if a.flying != 1 || b.flying != 0 {
			t.Fatalf("in flight: %d and %d, want one frame on the first", a.flying, b.flying)
		}
		s.expire(time.Now().Add(16 * time.Second))
		if len(s.links) != 1 || s.links[0] != b || !errors.Is((<-a.gone).reason, errAckTimeout) {
			t.Fatalf("after the timeout %d carriers, want the second", len(s.links))
		}
		s.feed(time.Now())
		if b.flying != 1 {
			t.Errorf("in flight on the second: %d, want what the first had", b.flying)
		}
		finish(s)
	})
}

// A carrier that reaches another collector than the session's others does not
// join: each would have half of the readings and wait for the rest.
func TestJoinElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a, b := twoCarriers(t)
		l := joining(t, s)
		err := s.join(time.Now(), l, wire.Welcome{Version: 1, MaxFrame: 1 << 20, MaxUnacked: 1 << 20, Instance: 6})
		if len(s.links) != 2 || !errors.Is(err, errElsewhere) {
			t.Errorf("%d carriers, %v, want the two that lead to one collector", len(s.links), err)
		}
		if !a.ask || !b.ask {
			t.Error("the two are not asked whether their collector still lives")
		}
		l.carrier.Close()
		finish(s)
	})
}

// One carrier that is drained does not make the uplink stop delivering.
func TestDeliveringWhileOneDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a, _ := twoCarriers(t)
		a.draining = true
		s.publish(time.Now())
		if !s.Delivering() {
			t.Error("not delivering with a second carrier")
		}
		finish(s)
	})
}

// A dial that does not end at once keeps Run, which sleeps meanwhile: time passes in
// the bubble only while everybody does.
func TestRunEndsAfterADialThatLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := New(Options{Queue: one{}, Keepalive: time.Minute, AckTimeout: 15 * time.Second, Logger: slog.New(slog.DiscardHandler),
			Slots: []Slot{{Name: "slow", Dialers: []Dialer{{Dial: func(context.Context) (Carrier, error) {
				cancel()
				<-time.After(drainTimeout + time.Second)
				return nil, context.Canceled
			}}}}}})
		began := time.Now()
		if err := s.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != drainTimeout+time.Second {
			t.Errorf("ended after %v", took)
		}
	})
}
