package broker

import (
	"net"
	"sync"
	"time"
)

const (
	// outboxSize is how many bytes may wait to be written to a client before
	// messages to it are held back.
	outboxSize = 32 << 10
	// outboxLimit is how many may wait before the client is not read any more:
	// one that only asks and never reads the answers.
	outboxLimit = 8 * outboxSize
	// writeTimeout is how long a client may refuse to read before it is
	// disconnected, closeTimeout how long once the connection is to end.
	writeTimeout = 10 * time.Second
	closeTimeout = time.Second
)

// outbox writes to a connection from one goroutine, so that many small packets
// go out in one write, and so that the library, which holds its lock of the
// client while it writes, never waits for the network: publishers to a client
// need that lock.
//
// It also holds messages back while a returning client has not got those that
// waited for it, and while as many are unacknowledged as the client wants at
// once (MQTT 5.0, 4.9: the library's own count sends them out of order).
type outbox struct {
	conn net.Conn

	mu    sync.Mutex // guards what follows
	ready sync.Cond  // there is something to write, or the end
	room  sync.Cond  // whoever waits below should look again

	out     []byte
	closed  bool // nothing more is taken; what is there is still written
	live    bool // messages that waited for the client have been sent
	flight  int  // messages of QoS 1 and 2 that the client has not completed
	maximum int  // of flight; 0: no limit
}

func newOutbox(nc net.Conn) *outbox {
	o := &outbox{conn: nc}
	o.ready.L, o.room.L = &o.mu, &o.mu
	return o
}

// write takes bytes to be written. It does not block.
func (o *outbox) write(p []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return net.ErrClosed
	}
	if len(o.out) == 0 {
		o.ready.Signal()
	}
	o.out = append(o.out, p...)
	return nil
}

// run writes until the outbox is closed and empty, then closes the connection.
func (o *outbox) run() {
	defer o.conn.Close()
	var spare []byte
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		for len(o.out) == 0 && !o.closed {
			o.ready.Wait()
		}
		if len(o.out) == 0 {
			return
		}
		out := o.out
		o.out = spare[:0]
		o.room.Broadcast()
		if !o.closed { // close has set a shorter deadline
			_ = o.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
		}
		o.mu.Unlock()
		_, err := o.conn.Write(out)
		o.mu.Lock()
		if err != nil {
			// Part of a packet may be out. The reader sees the end, too.
			o.closed = true
			o.room.Broadcast()
			return
		}
		spare = nil
		if cap(out) <= outboxLimit {
			spare = out
		}
	}
}

// close lets run write what is there and end.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.closed = true
		_ = o.conn.SetWriteDeadline(time.Now().Add(closeTimeout))
		o.ready.Signal()
		o.room.Broadcast()
	}
}

// awaitRoom waits while far too much is to be written.
func (o *outbox) awaitRoom() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.out) >= outboxLimit && !o.closed {
		o.room.Wait()
	}
}

// admit waits until a message may be sent to the client; acknowledged says that
// the client will complete it, waited that it is one of those that go first. It
// returns false once the connection has ended.
func (o *outbox) admit(acknowledged, waited bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	full := func() bool {
		return len(o.out) >= outboxSize || acknowledged && o.maximum > 0 && o.flight >= o.maximum
	}
	for !o.closed && (!o.live && !waited || full()) {
		o.room.Wait()
	}
	if acknowledged && !o.closed {
		o.flight++
	}
	return !o.closed
}

// completed notes that the client has completed a message.
func (o *outbox) completed() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.flight > 0 {
		o.flight--
		o.room.Broadcast()
	}
}

// resumed lets messages pass that did not wait for the client.
func (o *outbox) resumed() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.live = true
	o.room.Broadcast()
}
