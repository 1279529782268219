package broker

import (
	"bytes"
	"net"
	"sync"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"
)

const (
	// outboxSize is how many bytes may wait to be written to a client before
	// messages to it stay in its queue.
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
// client while it writes, never waits for the network.
//
// It also queues the messages for the client. They wait while a returning
// client has not got those that waited for it before, while as many are
// unacknowledged as the client wants at once (MQTT 5.0, 4.9: the library's own
// count sends them out of order), and while the network is slow. The library's
// queue, which knows no bytes, only hands them over.
type outbox struct {
	conn *conn

	mu    sync.Mutex // guards what follows; session.mu may be taken under it
	ready sync.Cond  // there is something to write, or the end
	room  sync.Cond  // there is less to write, or the end

	out     []byte
	queue   []message
	waiting allowance // of the messages of QoS 0 in queue
	live    bool      // the messages that waited for the client are in queue
	flight  int       // messages of QoS 1 and 2 that the client has not completed
	maximum int       // of flight; 0: no limit
	ending  bool      // messages are not written any more
	closed  bool      // nothing more is taken; what is there is still written
}

// message is one for the client: of QoS 0 the packet, of QoS 1 and 2 the
// identifier under which the library has it in flight.
type message struct {
	id uint16
	pk *packets.Packet
}

func newOutbox(c *conn) *outbox {
	o := &outbox{conn: c, waiting: allowance{all: &c.broker.waiting}}
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

// put queues a message. It does not block, and returns false if there is no
// room.
func (o *outbox) put(m message) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.ending:
		return true // lost with the connection, or kept in the session
	case m.pk == nil && !o.live:
		return true // resume asks the session for it
	case m.pk != nil && !o.waiting.take(messageSize(m.pk)):
		return false
	}
	if len(o.queue) == 0 {
		o.ready.Signal()
	}
	o.queue = append(o.queue, m)
	return true
}

// resume queues what the session has waiting for the client, before all that
// comes from now on.
func (o *outbox) resume() {
	o.mu.Lock()
	defer o.mu.Unlock()
	var waited []message
	for _, id := range o.conn.session.resume() {
		waited = append(waited, message{id: id})
	}
	o.queue = append(waited, o.queue...)
	o.live = true
	o.ready.Signal()
}

// run writes until the outbox is closed and empty, then closes the connection.
func (o *outbox) run() {
	defer o.conn.Conn.Close()
	var spare []byte
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		for o.fill(); len(o.out) == 0; o.fill() {
			if o.closed {
				return
			}
			o.ready.Wait()
		}
		out := o.out
		o.out = spare[:0]
		o.room.Broadcast()
		if !o.ending { // end has set a shorter deadline
			_ = o.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
		}
		o.mu.Unlock()
		_, err := o.conn.Conn.Write(out)
		o.mu.Lock()
		if err != nil {
			// Part of a packet may be out. The reader sees the end, too.
			o.stop()
			o.closed = true
			return
		}
		spare = nil
		if cap(out) <= outboxLimit {
			spare = out
		}
	}
}

// fill encodes messages from the queue as long as the client may get them. The
// caller holds o.mu.
func (o *outbox) fill() {
	if o.live {
		o.conn.forgetDropped()
	}
	n := 0
	for ; o.live && n < len(o.queue) && len(o.out) < outboxSize; n++ {
		m := o.queue[n]
		if m.pk != nil {
			o.waiting.give(messageSize(m.pk))
			if !o.encode(*m.pk) {
				o.conn.broker.counters.undelivered.Add(1)
			}
			continue
		}
		if o.maximum > 0 && o.flight >= o.maximum {
			break
		}
		if pk, ok := o.conn.due(m.id); ok {
			if o.encode(pk) {
				o.flight++
			} else {
				o.conn.drop(m.id)
			}
		}
	}
	clear(o.queue[:n])
	if o.queue = o.queue[n:]; len(o.queue) == 0 {
		o.queue = nil
	}
}

// encode appends a message to what is to be written. It returns false if the
// client does not want it: it is too old, or too large.
func (o *outbox) encode(pk packets.Packet) bool {
	props := &o.conn.client.Properties
	pk.ProtocolVersion = props.ProtocolVersion
	pk.Mods = packets.Mods{MaxSize: props.Props.MaximumPacketSize, AllowResponseInfo: true}
	if pk.FixedHeader.Type == packets.Publish && pk.Expiry > 0 {
		left := pk.Expiry - time.Now().Unix()
		if left <= 0 {
			return false
		}
		pk.Properties.MessageExpiryInterval = uint32(left)
	}
	to := bytes.NewBuffer(o.out)
	encode := pk.PublishEncode
	if pk.FixedHeader.Type == packets.Pubrel {
		encode = pk.PubrelEncode
	}
	if encode(to) != nil || pk.Mods.MaxSize > 0 && to.Len()-len(o.out) > int(pk.Mods.MaxSize) {
		return false
	}
	o.out = to.Bytes()
	o.conn.broker.countSent()
	return true
}

// completed notes that the client has completed a message.
func (o *outbox) completed() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.flight--
	if len(o.queue) > 0 {
		o.ready.Signal()
	}
}

// end stops messages and lets run write the rest soon.
func (o *outbox) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ending {
		_ = o.conn.SetWriteDeadline(time.Now().Add(closeTimeout))
		o.stop()
	}
}

// stop forgets the queue. The caller holds o.mu.
func (o *outbox) stop() {
	o.ending = true
	o.queue = nil
	o.waiting.clear()
	o.room.Broadcast()
}

// close lets run write what is there and end. It follows end.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.ready.Signal()
}

// awaitRoom waits while far too much is to be written.
func (o *outbox) awaitRoom() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.out) >= outboxLimit && !o.ending {
		o.room.Wait()
	}
}
