package broker

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/mochi-mqtt/server/v2/listeners"
	"github.com/mochi-mqtt/server/v2/packets"
)

// strangersMaximum is how many connections, beyond the number of clients
// allowed, may be open before their CONNECT.
const strangersMaximum = 32

// listener accepts connections. The library's own gives up at the first error,
// has no time limit before CONNECT, and does not know the connections that have
// not sent one when it is closed.
type listener struct {
	broker *Broker
	id     string
	ln     net.Listener
	tls    *tls.Config

	mu      sync.Mutex // guards what follows
	conns   map[*conn]struct{}
	closed  bool
	running sync.WaitGroup // the accept loop and the connections
}

var _ listeners.Listener = (*listener)(nil)

func newListener(b *Broker, id string, o Listener) (*listener, error) {
	ln, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", o.Address)
	if err != nil {
		return nil, err
	}
	return &listener{broker: b, id: id, ln: ln, tls: o.TLS, conns: map[*conn]struct{}{}}, nil
}

func (l *listener) Init(*slog.Logger) error { return nil }
func (l *listener) ID() string              { return l.id }
func (l *listener) Address() string         { return l.ln.Addr().String() }

func (l *listener) Protocol() string {
	if l.tls != nil {
		return "tls"
	}
	return "tcp"
}

// Serve accepts connections until Close.
func (l *listener) Serve(establish listeners.EstablishFn) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	l.running.Add(1)
	l.mu.Unlock()
	defer l.running.Done()

	const shortest, longest = 5 * time.Millisecond, time.Second
	pause := shortest
	for {
		nc, err := l.ln.Accept()
		switch {
		case err == nil:
			pause = shortest
			l.serve(nc, establish)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			// Out of file descriptors, mostly: it passes.
			l.broker.log.Warn("mqtt accept", "address", l.Address(), "error", err)
			select {
			case <-time.After(pause):
			case <-l.broker.closing.Done():
			}
			pause = min(2*pause, longest)
		}
	}
}

// serve runs one connection in a goroutine of its own.
func (l *listener) serve(nc net.Conn, establish listeners.EstablishFn) {
	if l.tls != nil {
		nc = tls.Server(nc, l.tls)
	}
	c := newConn(l.broker, nc)
	l.mu.Lock()
	full := len(l.conns) >= l.broker.options.MaxClients+strangersMaximum
	if l.closed || full {
		l.mu.Unlock()
		_ = nc.Close()
		if full {
			l.broker.counters.strangers.Add(1)
			l.broker.log.Warn("mqtt connection refused: too many connections", "remote", nc.RemoteAddr().String())
		}
		return
	}
	l.conns[c] = struct{}{}
	l.running.Add(2)
	l.mu.Unlock()

	go func() {
		defer l.running.Done()
		c.outbox.run()
	}()
	go func() {
		defer l.running.Done()
		_ = c.SetDeadline(time.Now().Add(connectTimeout))
		err := establish(l.id, c)
		_ = c.Close()
		c.outbox.close()
		l.mu.Lock()
		delete(l.conns, c)
		l.mu.Unlock()
		close(c.finished)
		if c.client == nil && err != nil && !errors.Is(err, io.EOF) {
			l.broker.log.Warn("mqtt connection ended before a valid CONNECT",
				"remote", nc.RemoteAddr().String(), "error", err)
		}
	}()
}

// Close stops accepting, disconnects all clients and waits for their
// goroutines. What the library passes for disconnecting them locks its table of
// clients twice, and waits for ever if a client comes or goes in between.
func (l *listener) Close(listeners.CloseFn) {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	_ = l.ln.Close()
	for _, cl := range l.broker.server.Clients.GetAll() {
		if cl.Net.Listener == l.id && !cl.Closed() {
			l.broker.disconnect(cl, packets.ErrServerShuttingDown)
		}
	}
	l.mu.Lock()
	left := slices.Collect(maps.Keys(l.conns))
	l.mu.Unlock()
	for _, c := range left {
		_ = c.Close()
	}
	l.running.Wait()
}
