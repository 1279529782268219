package uplink

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"sluice/reading"
	"sluice/uplink/wire"
)

const (
	dialTimeout      = 20 * time.Second // names, all addresses of a name, TLS
	handshakeTimeout = 10 * time.Second
	drainTimeout     = 2 * time.Second
	retryAfterMost   = time.Minute // however long a collector asks for
)

// Options configures a Sender. All fields without a note are required.
type Options struct {
	Gateway string // the name in the gateway's certificate
	Queue   Queue
	Dialers []Dialer // in order of preference

	Flush      time.Duration // how long a live reading may wait for others to share a frame; 0 for not at all
	MaxFrame   int           // bytes of one frame, at least 4096; large frames compress better, an alarm waits for one at most
	Keepalive  time.Duration // silence after which the collector is asked for a sign of life
	AckTimeout time.Duration // without progress for so long a carrier is given up

	// Correct fixes the times of unsynchronised readings in place, as far as it
	// can, and says whether it changed any. Nil leaves them.
	Correct func([]reading.Reading) bool
	Logger  *slog.Logger
}

// Sender keeps a session with one collector at a time and sends it what the
// queue holds.
type Sender struct {
	opt     Options
	session wire.SessionID

	started       time.Time    // what deliversUntil counts from, so that no step of the clock moves it
	deliversUntil atomic.Int64 // nanoseconds

	mu      sync.Mutex // guards what follows
	stats   Stats
	carrier Carrier // in use, nil if none
}

// New returns a Sender that does nothing until Run.
func New(opt Options) *Sender {
	s := &Sender{opt: opt, started: time.Now()}
	rand.Read(s.session[:])
	s.stats.State, s.stats.Since = Stopped, s.started
	return s
}

// Run sends until ctx ends, then waits up to two seconds for what is in flight
// to be acknowledged. It never gives up: no error of a collector ends it. It
// must be called once.
func (s *Sender) Run(ctx context.Context) error {
	ses := newSession(s)
	go func() {
		defer close(ses.dialed)
		s.connect(ctx, ses)
	}()
	ses.run(ctx) // which waits for dialed
	s.setState(time.Now(), Stopped, "shut down")
	return nil
}

// connect keeps one carrier in the session until ctx ends.
func (s *Sender) connect(ctx context.Context, ses *session) {
	var wait backoff
	var before string // why the last attempt or carrier ended
	var told string   // the last failure to connect that the log has
	for i := 0; ctx.Err() == nil; {
		d := s.opt.Dialers[i]
		s.mu.Lock()
		s.stats.Collector = d.Name
		s.mu.Unlock()
		trying := "dialling " + d.Name
		if before != "" {
			trying += "; before: " + before
		}
		if !ses.try(trying) {
			return
		}
		gone, err := s.deliver(ctx, ses, d)
		if ctx.Err() != nil {
			return
		}
		i = (i + 1) % len(s.opt.Dialers)
		switch {
		case err == nil: // it had joined, and the state told the log why it left
			err, told = gone.reason, ""
			if gone.delivered && !errors.Is(err, errSuperseded) {
				wait.reset()
				i = 0 // the link failed rather than the collector
			}
		case err.Error() != told:
			told = err.Error()
			s.opt.Logger.Warn("no carrier to the collector; attempts go on", "error", err)
		}
		pause := wait.next(mathrand.Float64())
		var rejected *rejectError
		if len(s.opt.Dialers) == 1 && errors.As(err, &rejected) {
			pause = max(pause, min(retryAfterMost, rejected.after))
		}
		before = err.Error()
		ses.try(fmt.Sprintf("%s; next attempt in %.1f s", before, pause.Seconds()))
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
func (s *Sender) deliver(ctx context.Context, ses *session, d Dialer) (farewell, error) {
	dialCtx, cancel := context.WithTimeout(ctx, dialTimeout)
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
	if !ses.post(func(now time.Time) { ses.join(now, l, welcome) }) {
		carrier.Close()
		return farewell{}, ctx.Err()
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
	l.rtt = now.Sub(asked)
	l.clockOffset = time.Unix(0, w.Wall).Sub(now.Add(-l.rtt / 2))
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
