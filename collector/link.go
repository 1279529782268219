package collector

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"sluice/reading"
	"sluice/uplink"
	"sluice/uplink/wire"
)

// service is one call of Serve: its end, and what it waits for.
type service struct {
	soft context.Context // ends: take no more, finish
	hard context.Context // ends: stop at once
	wg   *sync.WaitGroup // carriers and the writers of their streams
}

// link is a carrier in a session: the goroutine in run reads, another writes.
type link struct {
	carrier uplink.Carrier
	service service
	session *session
	hello   wire.Hello
	in      *wire.Reader
	unpack  *wire.Decompressor
	idle    time.Duration // without a message for so long, the gateway is gone
	heardAt time.Time     // of the last message; guarded by the session's mu

	wake chan struct{} // one value when there is something to say

	mu    sync.Mutex // guards what follows: what to say
	acks  [reading.Lanes]ackMark
	pongs []uint64
	drain bool
	close *wire.Close
	done  bool  // the reader has ended
	fault error // why the writer ended by itself
}

// ackMark says that an Ack is due for a lane.
type ackMark struct{ due, ranges bool }

// pongsMost bounds the answers that wait to be sent.
const pongsMost = 8

func newLink(c uplink.Carrier, srv service, in *wire.Reader, ses *session, hello wire.Hello) (*link, error) {
	unpack, err := wire.NewDecompressor(in.Buffered())
	if err != nil {
		return nil, err
	}
	keepalive := time.Duration(min(hello.Keepalive, uint64(keepaliveMost/time.Millisecond))) * time.Millisecond
	return &link{
		carrier: c, service: srv, session: ses, hello: hello,
		in:     wire.NewReader(unpack, ses.opt.Limits.MaxFrame),
		unpack: unpack,
		idle:   max(3*keepalive, idleLeast),
		wake:   make(chan struct{}, 1),
	}, nil
}

// run serves the carrier until it ends, and returns why.
func (l *link) run() error {
	var writing sync.WaitGroup
	writing.Go(l.write)
	stop := context.AfterFunc(l.service.soft, func() { l.say(func() { l.drain = true }) })
	defer stop()
	err := l.read()
	l.session.leave(l)
	l.say(func() {
		l.done = true
		switch {
		case l.close != nil: // whose writing ended the reading
			err = fmt.Errorf("told to go: %s", l.close.Reason)
		case l.fault != nil:
			err = fmt.Errorf("send: %w", l.fault)
		case errors.Is(err, os.ErrDeadlineExceeded):
			err = errors.New("the gateway or the path is dead: nothing was heard in time")
		case l.service.hard.Err() != nil:
			err = errors.New("the collector shuts down")
		}
		if l.close == nil && (errors.Is(err, wire.ErrMalformed) || errors.Is(err, wire.ErrTooLong) ||
			errors.Is(err, wire.ErrUnknown) || errors.Is(err, errWindow) || errors.Is(err, errReorder)) {
			l.close = &wire.Close{Code: wire.CodeProtocol, Reason: err.Error()}
		}
	})
	writing.Wait()
	l.unpack.Close()
	return err
}

// read takes messages until the carrier ends.
func (l *link) read() error {
	for {
		if err := l.carrier.SetReadDeadline(time.Now().Add(l.idle)); err != nil {
			return err
		}
		t, body, err := l.in.Next()
		if err != nil {
			return err
		}
		l.session.heard(l)
		if err := l.handle(t, body); err != nil {
			return err
		}
	}
}

func (l *link) handle(t wire.Type, body []byte) error {
	switch t {
	case wire.TypeData:
		own := append([]byte(nil), body...) // body is the reader's
		data, err := wire.DecodeData(own, nil)
		if err != nil {
			return err
		}
		return l.session.streams[data.Lane].receive(l.service.hard, frame{Data: data, bytes: len(own), link: l})
	case wire.TypePing:
		id, err := wire.DecodeNumber(body)
		l.say(func() {
			if len(l.pongs) < pongsMost {
				l.pongs = append(l.pongs, id)
			}
		})
		return err
	case wire.TypePong:
		return nil
	case wire.TypeClose:
		c, err := wire.DecodeClose(body)
		if err == nil {
			err = fmt.Errorf("closed by the gateway: %s", c.Reason)
		}
		return err
	}
	return fmt.Errorf("type %d from a gateway: %w", t, wire.ErrMalformed)
}

// say changes what is to be sent and wakes the writer.
func (l *link) say(change func()) {
	l.mu.Lock()
	change()
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// ack has the state of a lane sent; ranges adds what is received and not durable.
func (l *link) ack(lane reading.Lane, ranges bool) {
	l.say(func() {
		l.acks[lane].due = true
		l.acks[lane].ranges = l.acks[lane].ranges || ranges
	})
}

// end has the carrier closed, after c is sent.
func (l *link) end(c wire.Close) { l.say(func() { l.close = &c }) }

// write sends what is due, acknowledgements of several lanes as one, until the
// reader has ended or the carrier is to be closed; then it closes the carrier.
func (l *link) write() {
	defer l.carrier.Close() // ends the reader
	drained := false
	var msg []byte
	for range l.wake {
		var last bool
		msg, last = l.compose(msg[:0], &drained)
		if err := l.send(msg); err != nil {
			l.say(func() { l.fault = err })
			return
		}
		if last {
			return
		}
	}
}

func (l *link) send(msg []byte) error {
	if len(msg) == 0 {
		return nil
	}
	if err := l.carrier.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	_, err := l.carrier.Write(msg)
	return err
}

// compose appends everything that is due. last says that nothing follows.
func (l *link) compose(msg []byte, drained *bool) (_ []byte, last bool) {
	l.mu.Lock()
	acks, pongs, drain, bye, done := l.acks, l.pongs, l.drain, l.close, l.done
	l.acks, l.pongs = [reading.Lanes]ackMark{}, nil
	l.mu.Unlock()
	var ack wire.Ack
	for i, a := range acks {
		if a.due {
			ack.Lanes = append(ack.Lanes, l.session.streams[i].state(a.ranges))
		}
	}
	if len(ack.Lanes) > 0 {
		msg = wire.AppendAck(msg, ack)
	}
	for _, id := range pongs {
		msg = wire.AppendPong(msg, id)
	}
	if drain && !*drained {
		*drained = true
		msg = wire.AppendDrain(msg)
	}
	if bye != nil {
		return wire.AppendClose(msg, *bye), true
	}
	return msg, done
}
