package uplink

import (
	"errors"
	"fmt"
	"io"
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
	name    string
	epoch   uint64        // of the queue, as the Hello said
	gone    chan farewell // receives one value when the link has left

	// the reading goroutine's
	in *wire.Reader
	// the writing goroutine's
	pack *wire.Compressor
	tx   chan []byte // messages to write; closed when the link leaves

	out       []byte // the message that was handed to tx last
	busy      bool   // it is not written yet
	draining  bool   // the collector wants no more on this carrier
	delivered bool   // something was acknowledged
	meter     meter
	unsent    int // what the carrier was last told to limit
	flying    int // spans in flight here

	rtt         time.Duration // of Hello and Welcome, then of Ping and Pong
	clockOffset time.Duration
	heardAt     time.Time
	sentAt      time.Time
	pingAt      time.Time // of the Ping that is not answered; zero if none
	pingID      uint64
	pongs       []uint64 // Pings of the collector to answer
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
	return &link{carrier: c, name: name, epoch: epoch, gone: make(chan farewell, 1), in: in, pack: pack, tx: make(chan []byte, 1)}, nil
}

// limitUnsent follows the link's rate, in steps that are worth telling.
func (l *link) limitUnsent() {
	if want := unsent(l.meter.rate()); want > l.unsent*3/2 || want < l.unsent*2/3 {
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
		err := l.writeOne(msg)
		ses.post(func(now time.Time) { ses.written(now, l, err) })
	}
}

func (l *link) writeOne(msg []byte) error {
	packed, err := l.pack.Compress(msg)
	if err != nil {
		return err
	}
	if err := l.carrier.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
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
