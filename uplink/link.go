package uplink

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"sluice/uplink/wire"
)

// writeTimeout ends a write that a peer does not take in, whatever the
// transport's own timeouts do (F22).
const writeTimeout = 15 * time.Second

// link is a carrier that joined the session. The session's goroutine owns every
// field below the goroutines' own.
type link struct {
	carrier Carrier
	name    string // of the dialer
	remote  string
	epoch   uint64        // of the queue, as the Hello said
	gone    chan farewell // receives one value when the link has left

	// the reading goroutine's
	in *wire.Reader
	// the writing goroutine's
	pack *wire.Compressor
	tx   chan []byte // messages to write; closed when the link leaves

	slot      *slot
	out       []byte    // the message that was handed to tx last
	busy      bool      // it is not written yet
	draining  bool      // the collector wants no more on this carrier
	leaveBy   time.Time // set when the slot is no longer planned
	closing   bool      // out is a Close
	delivered bool      // something was acknowledged
	meter     meter
	unsent    int // what the carrier was last told to limit
	pace      pacer
	holdUntil time.Time // nothing but alarms goes before

	flying     int       // spans in flight here
	bytes      int       // of them
	waiting    []*span   // those that the collector has not, by the time they were sent; the first may have left
	progressAt time.Time // when the collector was last heard to have one
	newest     time.Time // when the newest of those was sent
	answered   time.Time // when the newest of those in the Ack at hand was sent

	doubtAt time.Time     // since when it does not deliver; zero if it does
	stuckAt time.Time     // when the first of what it did not deliver was sent
	ask     bool          // send a Ping as soon as possible
	rtt     roundTrip     // of frames and Pings
	ping    time.Duration // the last round trip of Hello and Welcome, or of Ping and Pong
	heardAt time.Time
	sentAt  time.Time
	pingAt  time.Time // of the Ping that is not answered; zero if none
	pingID  uint64
	pongs   []uint64 // Pings of the collector to answer
}

// farewell is how a link left.
type farewell struct {
	reason    error
	delivered bool
}

func newLink(c Carrier, in *wire.Reader, name string, epoch uint64) (*link, error) {
	pack, err := wire.NewCompressor()
	if err != nil {
		return nil, err
	}
	return &link{carrier: c, name: name, remote: c.RemoteAddr().String(), epoch: epoch, gone: make(chan farewell, 1), in: in, pack: pack, tx: make(chan []byte, 1)}, nil
}

// carry notes that a span is in flight here.
func (l *link) carry(s *span) {
	s.link = l
	l.flying++
	l.bytes += s.bytes
	if !s.held {
		l.track(s)
	}
}

// track notes that the collector is not known to have a span.
func (l *link) track(s *span) {
	i := len(l.waiting)
	for i > 0 && l.waiting[i-1].meter.sentAt.After(s.meter.sentAt) {
		i--
	}
	l.waiting = slices.Insert(l.waiting, i, s)
}

// release notes that a span is no longer in flight here.
func (l *link) release(s *span) {
	s.link = nil
	l.flying--
	l.bytes -= s.bytes
}

// oldest is the span that was sent first of those that the collector is not
// known to have; nil if there is none.
func (l *link) oldest() *span {
	n := 0
	for n < len(l.waiting) && (l.waiting[n].link != l || l.waiting[n].held) {
		n++
	}
	l.waiting = slices.Delete(l.waiting, 0, n)
	if len(l.waiting) == 0 {
		return nil
	}
	return l.waiting[0]
}

// received notes that the collector has a span.
func (l *link) received(now time.Time, s *span) {
	l.progressAt = now
	if s.meter.sentAt.After(l.doubtAt) {
		l.doubtAt = time.Time{}
	}
	if l.newest.Before(s.meter.sentAt) {
		l.newest = s.meter.sentAt
	}
	l.meter.acked(now, s.bytes, s.meter, s.again)
	if !s.again && l.answered.Before(s.meter.sentAt) {
		l.answered = s.meter.sentAt
	}
}

// sample takes a round trip from what an Ack named, of the frame sent last: the
// others' acknowledgements may have been lost or late.
func (l *link) sample(now time.Time) {
	if !l.answered.IsZero() {
		l.rtt.add(now.Sub(l.answered))
		l.answered = time.Time{}
	}
}

// doubt notes that the link does not deliver what it has since an instant: it
// gets nothing new while others do, until it answers a Ping, which comes behind
// everything it was given.
func (l *link) doubt(now, since time.Time) {
	if l.doubtAt.IsZero() {
		l.doubtAt, l.stuckAt, l.ask = now, since, true
	}
}

// stuck is when the oldest of what was sent here, and is not known to have come,
// was sent; zero if there is nothing.
func (l *link) stuck() time.Time {
	if !l.doubtAt.IsZero() {
		return l.stuckAt
	}
	if s := l.oldest(); s != nil {
		return s.meter.sentAt
	}
	return time.Time{}
}

// rate is what the link delivers, in frame bytes a second, 0 if nothing is known.
func (l *link) rate() float64 {
	rate := l.meter.rate()
	if path := l.pace.frameRate(); path > 0 && path < rate {
		return path // the meter is slower to see that a path was fast for a moment only
	}
	return rate
}

// limitUnsent follows the link's rate, in steps that are worth telling.
func (l *link) limitUnsent() {
	if want := unsent(l.rate()); want > l.unsent*3/2 || want < l.unsent*2/3 {
		l.unsent = want
		l.carrier.LimitUnsent(want)
	}
}

// start runs the goroutines; they end when the session closes carrier and tx.
func (l *link) start(wg *sync.WaitGroup, ses *session) {
	wg.Go(func() { l.write(ses) })
	wg.Go(func() { l.read(ses) })
}

// write sends what comes through tx.
func (l *link) write(ses *session) {
	for msg := range l.tx {
		err := l.writeOne(msg, writeTimeout)
		ses.post(func(now time.Time) { ses.written(now, l, err) })
	}
}

func (l *link) writeOne(msg []byte, timeout time.Duration) error {
	packed, err := l.pack.Compress(msg)
	if err != nil {
		return err
	}
	if err := l.carrier.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	_, err = l.carrier.Write(packed)
	return err
}

// read passes the collector's messages to the session.
func (l *link) read(ses *session) {
	for {
		handle, err := l.readOne(ses)
		if err != nil {
			ses.post(func(now time.Time) { ses.leave(now, l, err) })
			return
		}
		if !ses.post(handle) {
			return
		}
	}
}

// lost says what the end of a carrier means.
func lost(doing string, err error) error {
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("the collector went away without a word")
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("the path is dead: %s: %w", doing, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// readOne reads a message and returns what the session has to do about it.
func (l *link) readOne(ses *session) (func(time.Time), error) {
	t, body, err := l.in.Next()
	if err != nil {
		return nil, lost("receive", err)
	}
	switch t {
	case wire.TypeAck:
		ack, err := wire.DecodeAck(body)
		return func(now time.Time) { ses.acked(now, l, ack) }, err
	case wire.TypePing:
		id, err := wire.DecodeNumber(body)
		return func(now time.Time) { ses.pinged(now, l, id) }, err
	case wire.TypePong:
		id, err := wire.DecodeNumber(body)
		return func(now time.Time) { ses.ponged(now, l, id) }, err
	case wire.TypeDrain:
		return func(now time.Time) { ses.drained(now, l) }, nil
	case wire.TypeClose:
		c, err := wire.DecodeClose(body)
		if err == nil {
			err = fmt.Errorf("closed by the collector: %s", c.Reason)
			if c.Code == wire.CodeSuperseded {
				err = fmt.Errorf("%w: %s", errSuperseded, c.Reason)
			}
		}
		return nil, err
	}
	return nil, fmt.Errorf("type %d from a collector: %w", t, wire.ErrMalformed)
}
