package broker

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"
)

const (
	// connectTimeout bounds the TLS handshake and the wait for CONNECT.
	connectTimeout = 10 * time.Second
	// deadlineSlack is how late a silent client may be noticed, so that the
	// read deadline need not be moved at every packet.
	deadlineSlack = time.Second
	// topicsMaximum is of how many topics a connection remembers whether they
	// have subscribers.
	topicsMaximum = 1024
)

// conn is a client's network connection and all that the broker knows of it
// beyond what the library does. The library keeps it as Client.Net.Conn, also
// after the connection has ended and only its session is left.
type conn struct {
	net.Conn
	broker *Broker
	outbox *outbox // what is to be written
	window *window
	ctx    context.Context // ends with the connection
	cancel context.CancelFunc
	// order is what acknowledged publishes are appended with. It also ends, with
	// the reason, when one is refused that the client will send again.
	order    context.Context
	endOrder context.CancelCauseFunc

	// Set while the connection is established, constant afterwards.
	client  *mqtt.Client
	session *session
	sender  string // of receipts
	account *account

	rights      atomic.Pointer[rights]
	discard     atomic.Bool   // the next Write
	told        atomic.Bool   // DISCONNECT has been sent
	overrun     atomic.Bool   // the library dropped a message: see forgetDropped
	left        atomic.Uint64 // when the connection ended, counted in ends; 0: it has not
	arrival     string        // the key in Broker.arriving, guarded by Broker.mu
	established chan struct{} // closed when the session is, or never will be
	settle      sync.Once
	finished    chan struct{} // closed when the library is through with it

	// The goroutine that reads the connection alone uses what follows.
	deadline time.Time // armed for reading
	in       inbound
	request  uint16          // identifier of the SUBSCRIBE or UNSUBSCRIBE at hand
	aliases  []string        // by topic alias; "": not set
	topics   map[string]bool // whether it has subscribers
	topicsAt uint64          // Broker.subscribed at which topics holds
}

func newConn(b *Broker, nc net.Conn) *conn {
	c := &conn{
		Conn:        nc,
		broker:      b,
		established: make(chan struct{}),
		finished:    make(chan struct{}),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.order, c.endOrder = context.WithCancelCause(c.ctx)
	c.outbox = newOutbox(c)
	c.window = newWindow(c)
	return c
}

// connOf returns the connection that a client came by, nil for none.
func connOf(cl *mqtt.Client) *conn {
	c, _ := cl.Net.Conn.(*conn)
	return c
}

// SetDeadline sets the read deadline, at most deadlineSlack later than asked
// for. The library calls it before every packet, for both directions.
func (c *conn) SetDeadline(t time.Time) error {
	if c.ctx.Err() != nil {
		return net.ErrClosed
	}
	if t.IsZero() {
		if c.deadline.IsZero() {
			return nil
		}
	} else {
		if !c.deadline.IsZero() && !c.deadline.Before(t) && c.deadline.Sub(t) <= deadlineSlack {
			return nil
		}
		t = t.Add(deadlineSlack)
	}
	c.deadline = t
	if err := c.Conn.SetReadDeadline(t); err != nil {
		return err
	}
	if c.ctx.Err() != nil {
		return c.wake() // Close may have set its deadline before
	}
	return nil
}

// wake makes the goroutine that reads the connection stop.
func (c *conn) wake() error { return c.Conn.SetReadDeadline(time.Unix(1, 0)) }

// Write hands p to the outbox; it does not block.
func (c *conn) Write(p []byte) (int, error) {
	if c.discard.CompareAndSwap(true, false) {
		return len(p), nil
	}
	if err := c.outbox.write(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close lets the connection end: once the library is through with it and what
// has been written to it is out. What waits for the sink on its behalf returns,
// and publishes that are not durable yet are never acknowledged on it.
func (c *conn) Close() error {
	c.cancel()
	c.left.CompareAndSwap(0, c.broker.departures.Add(1))
	c.window.close()
	c.settled()
	c.outbox.end()
	return c.wake()
}

// settled lets the next connection with the same client id proceed.
func (c *conn) settled() {
	c.settle.Do(func() {
		close(c.established)
		c.broker.depart(c)
	})
}

// resuming reports whether the session is being established: CONNACK may be
// out, but nothing is read yet.
func (c *conn) resuming() bool {
	select {
	case <-c.established:
		return false
	default:
		return true
	}
}

// due returns the packet in flight to the client under the identifier, if it is
// to be sent now.
func (c *conn) due(id uint16) (packets.Packet, bool) {
	pk, ok := c.client.State.Inflight.Get(id)
	if !ok {
		c.session.complete(id) // the library dropped it, or it has expired
		return pk, false
	}
	if pk.FixedHeader.Type == packets.Publish && !c.rights.Load().maySubscribe(pk.TopicName) {
		// It waited for a client that had more rights, or another user.
		c.drop(id)
		return pk, false
	}
	again, ok := c.session.send(id)
	pk.FixedHeader.Dup = again && pk.FixedHeader.Type == packets.Publish
	return pk, ok
}

// forgetDropped forgets what the library has dropped without saying which it was.
func (c *conn) forgetDropped() {
	if !c.overrun.Swap(false) {
		return
	}
	for _, id := range c.session.waits() {
		if _, ok := c.client.State.Inflight.Get(id); !ok {
			c.session.complete(id)
		}
	}
}

// drop gives up a message of QoS 1 or 2 for the client.
func (c *conn) drop(id uint16) {
	c.session.complete(id)
	if c.client.State.Inflight.Delete(id) {
		atomic.AddInt64(&c.broker.server.Info.Inflight, -1)
	}
	c.broker.counters.undelivered.Add(1)
}

// heard reports whether topic has subscribers. It remembers the answer: most
// sensors publish to the same few topics, and most of these nobody reads here.
func (c *conn) heard(topic string) bool {
	// The count is read first: a subscription that comes while the index is
	// searched changes it, and the answer is not believed the next time.
	now := c.broker.subscribed.Load()
	if now != c.topicsAt || len(c.topics) >= topicsMaximum {
		clear(c.topics)
		c.topicsAt = now
	}
	heard, known := c.topics[topic]
	if !known {
		heard = c.broker.hasSubscribers(topic)
		if c.topics == nil {
			c.topics = map[string]bool{}
		}
		c.topics[topic] = heard
	}
	return heard
}

// arrive waits until no other connection with c's client id is on its way in,
// and until the one that was established before has ended entirely. The library
// alone lets the end of the old connection remove the new one from its tables,
// and publishes of both be handed to the sink out of order.
func (b *Broker) arrive(c *conn) {
	id := c.client.ID
	for {
		b.mu.Lock()
		if c.ctx.Err() != nil {
			b.mu.Unlock()
			return
		}
		other := b.arriving[id]
		if other == nil {
			b.arriving[id], c.arrival = c, id
			b.mu.Unlock()
			break
		}
		b.mu.Unlock()
		select {
		case <-other.established:
		case <-c.ctx.Done():
		}
	}
	old := b.established(id)
	if old == nil {
		return
	}
	b.disconnect(old.client, packets.ErrSessionTakenOver)
	select {
	case <-old.finished:
	case <-c.ctx.Done():
	}
}

// forgetSession makes room for one session more, if need be by ending that of
// the client which has been away the longest: clients with a new id at every
// connection would fill the memory.
func (b *Broker) forgetSession(arriving string) {
	if _, known := b.server.Clients.Get(arriving); known ||
		b.server.Clients.Len() < sessionsPerClient*b.options.MaxClients {
		return
	}
	var oldest *conn
	for _, cl := range b.server.Clients.GetAll() {
		c := connOf(cl)
		if left := c.left.Load(); left != 0 && (oldest == nil || left < oldest.left.Load()) {
			oldest = c
		}
	}
	if oldest == nil {
		return
	}
	b.hook.OnClientExpired(oldest.client)
	b.server.Clients.Delete(oldest.client.ID)
	b.log.Warn("mqtt session forgotten: too many clients are away", "client", oldest.client.ID)
}

// depart removes c from those on their way in.
func (b *Broker) depart(c *conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.arriving[c.arrival] == c {
		delete(b.arriving, c.arrival)
	}
}

// established returns the connection of the session with client id, nil if
// there is no such session.
func (b *Broker) established(id string) *conn {
	if cl, ok := b.server.Clients.Get(id); ok {
		return connOf(cl)
	}
	return nil
}
