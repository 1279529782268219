package uplink

import (
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync/atomic"
	"time"

	"sluice/uplink/wire"
)

const (
	// dialTimeout is for names, all addresses of a name, and TLS; the dialers of a
	// slot share it.
	dialTimeout      = 20 * time.Second
	dialLeast        = 5 * time.Second // for each
	handshakeTimeout = 10 * time.Second
	retryAfterMost   = time.Minute // however long a collector asks for
	// leaveTimeout is how long a carrier that is no longer planned may wait for
	// the acknowledgement of what it has in flight.
	leaveTimeout = 2 * time.Second
)

// Slot is one carrier that a Sender keeps in its session: it is dialled again
// whenever it is lost, for ever.
type Slot struct {
	// Name is unique among the slots: "sctp", "tcp wlan0".
	Name string
	// Dialers are tried in order of preference, at least one; the first that
	// answers is kept.
	Dialers []Dialer
	// Standby carriers join and answer pings, but carry readings only while no
	// carrier of a slot without Standby has joined.
	Standby bool
}

// slot is a Slot in a session, and the goroutine in connect that fills it. The
// session's goroutine owns the fields below the goroutine's own.
type slot struct {
	name string

	// connect's, written by the session
	dialers atomic.Pointer[[]Dialer]
	cancel  context.CancelFunc // ends connect

	standby   bool
	leaving   bool  // no longer planned, and waits for what link has in flight
	link      *link // nil while none has joined
	dialler   Dialer
	state     CarrierState
	reason    string
	since     time.Time // of state
	delivered uint64    // frame bytes acknowledged
}

// take follows a plan.
func (sl *slot) take(p Slot) {
	sl.standby = p.Standby
	sl.dialers.Store(&p.Dialers)
}

// set changes what Stats shows.
func (sl *slot) set(now time.Time, state CarrierState, reason string) {
	if sl.state != state {
		sl.state, sl.since = state, now
	}
	sl.reason = reason
}

// connect keeps a carrier of the slot in the session until ctx ends.
func (s *session) connect(ctx context.Context, sl *slot) {
	log := s.opt.Logger.With("slot", sl.name)
	var wait backoff
	var before string // why the last attempt or carrier ended
	var told string   // the last failure to connect that the log has
	for i := 0; ctx.Err() == nil; {
		dialers := *sl.dialers.Load()
		i %= len(dialers)
		d := dialers[i]
		trying := "dialling " + d.Name
		if before != "" {
			trying += "; before: " + before
		}
		if !s.post(func(now time.Time) { sl.dialler = d; sl.set(now, CarrierDialling, trying) }) {
			return
		}
		gone, err := s.deliver(ctx, sl, d, max(dialLeast, dialTimeout/time.Duration(len(dialers))))
		if ctx.Err() != nil {
			return
		}
		i++
		switch {
		case err == nil: // it had joined, and the state told the log why it left
			err, told = gone.reason, ""
			if gone.delivered && !errors.Is(err, errSuperseded) {
				wait.reset()
				i = 0 // the link failed rather than the collector
			}
		case err.Error() != told:
			told = err.Error()
			log.Warn("no carrier to the collector; attempts go on", "error", err)
		}
		pause := wait.next(mathrand.Float64())
		var rejected *rejectError
		if len(dialers) == 1 && errors.As(err, &rejected) {
			pause = max(pause, min(retryAfterMost, rejected.after))
		}
		before = err.Error()
		waiting := fmt.Sprintf("%s; next attempt in %.1f s", before, pause.Seconds())
		s.post(func(now time.Time) { sl.set(now, CarrierWaiting, waiting) })
		s.mu.Lock()
		s.stats.Retries++
		s.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// deliver opens a carrier, lets it join the session and returns how it left, or
// an error if it never joined.
func (s *session) deliver(ctx context.Context, sl *slot, d Dialer, within time.Duration) (farewell, error) {
	dialCtx, cancel := context.WithTimeout(ctx, within)
	carrier, err := d.Dial(dialCtx)
	cancel()
	if err != nil {
		return farewell{}, fmt.Errorf("dial %s: %w", d.Name, err)
	}
	l, welcome, err := s.handshake(ctx, carrier, d)
	if err != nil {
		carrier.Close()
		return farewell{}, fmt.Errorf("collector %s: %w", d.Name, err)
	}
	l.slot = sl
	refused := make(chan error, 1)
	if !s.post(func(now time.Time) { refused <- s.join(now, l, welcome) }) {
		carrier.Close()
		return farewell{}, ctx.Err()
	}
	select {
	case err = <-refused:
	case <-s.ended: // the post may have come too late to be run
		select {
		case err = <-refused:
		default:
			err = errShutdown
		}
	}
	if err != nil {
		carrier.Close()
		return farewell{}, fmt.Errorf("collector %s: %w", d.Name, err)
	}
	select {
	case gone := <-l.gone:
		return gone, nil
	case <-ctx.Done():
		return farewell{}, ctx.Err() // the session ends the carrier
	}
}

// handshake exchanges Hello and Welcome.
func (s *Sender) handshake(ctx context.Context, c Carrier, d Dialer) (*link, wire.Welcome, error) {
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	asked := time.Now()
	if err := c.SetDeadline(asked.Add(handshakeTimeout)); err != nil {
		return nil, wire.Welcome{}, err
	}
	epoch := s.opt.Queue.Epoch()
	hello := wire.AppendHello(nil, wire.Hello{
		Version:   wire.Version,
		Gateway:   s.opt.Gateway,
		Session:   s.session,
		Epoch:     epoch,
		Carrier:   d.Kind,
		Keepalive: uint64(s.opt.Keepalive.Milliseconds()),
	})
	if _, err := c.Write(hello); err != nil {
		return nil, wire.Welcome{}, fmt.Errorf("send hello: %w", err)
	}
	r := wire.NewReader(c, wire.MaxHandshake)
	t, body, err := r.Next()
	if err != nil {
		return nil, wire.Welcome{}, fmt.Errorf("read welcome: %w", err)
	}
	w, err := welcome(t, body)
	if err != nil {
		return nil, wire.Welcome{}, err
	}
	now := time.Now()
	l, err := newLink(c, r, d.Name, epoch)
	if err != nil {
		return nil, wire.Welcome{}, err
	}
	l.ping = now.Sub(asked)
	l.rtt.add(l.ping)
	r.Limit(wire.MaxControl)
	return l, w, c.SetDeadline(time.Time{})
}

// welcome reads the answer to a Hello.
func welcome(t wire.Type, body []byte) (wire.Welcome, error) {
	switch t {
	case wire.TypeWelcome:
		w, err := wire.DecodeWelcome(body)
		if err == nil && (w.Version != wire.Version || w.MaxFrame == 0 || w.MaxUnacked == 0) {
			err = fmt.Errorf("welcome with version %d, frames of %d bytes, window of %d bytes: %w", w.Version, w.MaxFrame, w.MaxUnacked, wire.ErrMalformed)
		}
		return w, err
	case wire.TypeReject:
		r, err := wire.DecodeReject(body)
		if err != nil {
			return wire.Welcome{}, err
		}
		return wire.Welcome{}, &rejectError{reason: r.Reason, after: time.Duration(min(r.RetryAfter, uint64(retryAfterMost/time.Millisecond))) * time.Millisecond}
	}
	return wire.Welcome{}, fmt.Errorf("type %d instead of a welcome: %w", t, wire.ErrMalformed)
}

// rejectError is a collector's refusal.
type rejectError struct {
	reason string
	after  time.Duration
}

func (e *rejectError) Error() string { return "rejected: " + e.reason }
