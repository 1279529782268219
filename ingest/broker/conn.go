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
	// writeTimeout is how long a subscriber may refuse to read before it is
	// disconnected: while a write to it hangs, publishers to it hang too.
	writeTimeout = 10 * time.Second
	// deadlineSlack is how late a silent client may be noticed, so that the
	// read deadline need not be moved at every packet.
	deadlineSlack = time.Second
	// unheardMaximum is how many topics a connection remembers to have no
	// subscriber.
	unheardMaximum = 1024
)

// conn is a client's network connection and all that the broker knows of it
// beyond what the library does. The library keeps it as Client.Net.Conn, also
// after the connection has ended and only its session is left.
type conn struct {
	net.Conn
	broker *Broker
	window *window
	ctx    context.Context // ends with the connection
	cancel context.CancelFunc

	// Set while the connection is established, constant afterwards.
	client  *mqtt.Client
	session *session
	sender  string // of receipts
	account *account

	rights      atomic.Pointer[rights]
	established chan struct{} // closed when the session is, or never will be
	settle      sync.Once
	finished    chan struct{} // closed when the library is through with it

	// The goroutine that reads the connection alone uses what follows.
	deadline  time.Time // armed for reading
	in        inbound
	aliases   []string // by topic alias; "": not set
	unheard   map[string]struct{}
	unheardAt uint64 // Broker.subscribed at which unheard holds
}

func newConn(b *Broker, nc net.Conn) *conn {
	c := &conn{
		Conn:        nc,
		broker:      b,
		established: make(chan struct{}),
		finished:    make(chan struct{}),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
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
	return c.Conn.SetReadDeadline(t)
}

// Write writes p or fails within writeTimeout, and a connection that failed is
// closed: part of a packet may have gone out.
func (c *conn) Write(p []byte) (int, error) {
	if err := c.Conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(p)
	if err != nil {
		_ = c.Close()
	}
	return n, err
}

// Close ends the connection. What waits for the sink on its behalf returns, and
// publishes that are not durable yet are never acknowledged on it.
func (c *conn) Close() error {
	c.cancel()
	c.window.close()
	c.settled()
	return c.Conn.Close()
}

// settled lets the next connection with the same client id proceed.
func (c *conn) settled() {
	c.settle.Do(func() {
		close(c.established)
		c.broker.depart(c)
	})
}

// heard reports whether topic has subscribers, and remembers if it has none:
// most sensors publish to the same few topics that nobody here reads.
func (c *conn) heard(topic string) bool {
	// The count is read first: a subscription that comes while the index is
	// searched changes it, and the answer is not believed the next time.
	now := c.broker.subscribed.Load()
	if now != c.unheardAt || len(c.unheard) >= unheardMaximum {
		clear(c.unheard)
		c.unheardAt = now
	}
	if _, ok := c.unheard[topic]; ok {
		return false
	}
	if c.broker.hasSubscribers(topic) {
		return true
	}
	if c.unheard == nil {
		c.unheard = map[string]struct{}{}
	}
	c.unheard[topic] = struct{}{}
	return false
}

// arrive waits until no other connection with c's client id is on its way in,
// and until the one that was established before has ended entirely. The library
// alone lets the end of the old connection remove the new one from its tables,
// and publishes of both be handed to the sink out of order.
func (b *Broker) arrive(c *conn) {
	id := c.client.ID
	for {
		b.mu.Lock()
		other := b.arriving[id]
		if other == nil {
			b.arriving[id] = c
			b.mu.Unlock()
			break
		}
		b.mu.Unlock()
		select {
		case <-other.established:
		case <-c.ctx.Done():
			return
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

// depart removes c from those on their way in.
func (b *Broker) depart(c *conn) {
	if c.client == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.arriving[c.client.ID] == c {
		delete(b.arriving, c.client.ID)
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
