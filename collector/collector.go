package collector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"sluice/uplink"
	"sluice/uplink/wire"
)

const (
	handshakeTimeout = 10 * time.Second
	drainTimeout     = 5 * time.Second
	writeTimeout     = 15 * time.Second // of an ack that a gateway does not take in
	idleLeast        = 30 * time.Second // however often a gateway says it pings
	keepaliveMost    = time.Hour        // nor how rarely
)

// Listener accepts carriers of gateways that proved who they are.
type Listener interface {
	// Accept blocks until a carrier is there, or returns an error that wraps
	// net.ErrClosed after Close.
	Accept() (uplink.Carrier, error)
	Close() error
	Addr() net.Addr
}

// Limits bound what gateways can make the collector hold.
type Limits struct {
	Sessions int // gateways
	MaxFrame int // bytes of one message of readings
	Unacked  int // bytes a session may have sent that are not durable yet
	Memory   int // bytes of all sessions together; beyond it gateways are read more slowly
}

// DefaultLimits suit a machine with 2 GB of memory.
func DefaultLimits() Limits {
	return Limits{Sessions: 4096, MaxFrame: 16 << 20, Unacked: 4 << 20, Memory: 256 << 20}
}

// Options configures a Collector. All fields but Tunnels are required.
type Options struct {
	Outputs []Output // at least one; each gets every reading
	Limits  Limits
	Tunnels Tunnels // nil: gateways that ask for a tunnel are refused
	Logger  *slog.Logger
}

// Collector takes gateways' sessions and writes their readings to the outputs.
type Collector struct {
	opt     Options
	memory  *quota
	id      uint64     // of this process
	scratch *sync.Pool // of *scratch

	conflicts atomic.Uint64
	rejected  atomic.Uint64

	mu       sync.Mutex // guards what follows
	sessions map[string]*session
}

// New returns a Collector that does nothing until Serve.
func New(opt Options) *Collector {
	return &Collector{opt: opt, memory: newQuota(opt.Limits.Memory), id: rand.Uint64(), scratch: newScratchPool(), sessions: make(map[string]*session)}
}

// Serve takes carriers from ln until ctx ends, then tells the gateways to stop,
// writes and acknowledges what it has for up to five seconds, and closes them.
// It closes ln, and returns an error only if ln fails before ctx ends. Several
// listeners may be served at once.
func (c *Collector) Serve(ctx context.Context, ln Listener) error {
	// Carriers and writers end by their own rules when ctx ends, so they have a
	// context that ends later.
	hard, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	unregister := context.AfterFunc(ctx, func() { ln.Close() })
	defer unregister()
	srv := service{soft: ctx, hard: hard, wg: new(sync.WaitGroup)}
	var err error
	for {
		var carrier uplink.Carrier
		if carrier, err = ln.Accept(); err != nil {
			break
		}
		srv.wg.Go(func() { c.serve(srv, carrier) })
	}
	if ctx.Err() == nil {
		ln.Close()
	} else {
		err = nil
	}
	killer := time.AfterFunc(drainTimeout, kill)
	defer killer.Stop()
	srv.wg.Wait()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("accept on %s: %w", ln.Addr(), err)
	}
	return nil
}

// serve runs one carrier from its first message to its end.
func (c *Collector) serve(srv service, carrier uplink.Carrier) {
	log := c.opt.Logger.With("gateway", carrier.Peer(), "remote", carrier.RemoteAddr().String())
	kill := context.AfterFunc(srv.hard, func() { carrier.Close() })
	defer kill()
	defer carrier.Close()
	l, refused, err := c.welcome(srv, carrier)
	if err == nil && l == nil {
		return // it asked for a tunnel and has its answer
	}
	if err != nil {
		c.rejected.Add(1)
		log.Warn("carrier not taken", "error", err)
		if refused != nil {
			carrier.SetWriteDeadline(time.Now().Add(handshakeTimeout))
			if _, err := carrier.Write(wire.AppendReject(nil, *refused)); err != nil {
				log.Debug("send reject", "error", err)
			}
		}
		return
	}
	log.Info("carrier joined", "carrier", l.hello.Carrier, "epoch", l.session.epoch)
	err = l.run()
	log.Info("carrier left", "reason", err)
}

// welcome reads the Hello and takes the carrier into its session. A request for
// a tunnel instead is answered, and there is no link then. If it returns an
// error, refused is what to tell the gateway, or nil if there is nothing to tell.
func (c *Collector) welcome(srv service, carrier uplink.Carrier) (l *link, refused *wire.Reject, err error) {
	if err := carrier.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return nil, nil, err
	}
	in := wire.NewReader(carrier, wire.MaxHandshake)
	t, body, err := in.Next()
	if err != nil {
		return nil, nil, fmt.Errorf("read hello: %w", err)
	}
	if t == wire.TypeTunnelRequest {
		refused, err := c.lease(carrier, body)
		return nil, refused, err
	}
	if t != wire.TypeHello {
		return nil, nil, fmt.Errorf("type %d instead of a hello: %w", t, wire.ErrMalformed)
	}
	hello, err := wire.DecodeHello(body)
	if err != nil {
		return nil, &wire.Reject{Code: wire.CodeProtocol, Reason: err.Error()}, err
	}
	refuse := func(code wire.Code, after time.Duration, err error) (*link, *wire.Reject, error) {
		return nil, &wire.Reject{Code: code, Reason: err.Error(), RetryAfter: uint64(after.Milliseconds())}, err
	}
	switch {
	case hello.Version < 1:
		return refuse(wire.CodeVersion, time.Minute, fmt.Errorf("protocol version %d: this collector speaks 1 to %d", hello.Version, wire.Version))
	case hello.Gateway != carrier.Peer():
		return refuse(wire.CodeIdentity, time.Minute, errIdentity(hello.Gateway, carrier.Peer()))
	case srv.soft.Err() != nil:
		return refuse(wire.CodeUnavailable, time.Second, errors.New("collector shuts down"))
	}
	ses, err := c.session(hello)
	if err != nil {
		return refuse(wire.CodeBusy, 5*time.Second, err)
	}
	l, err = newLink(carrier, srv, in, ses, hello)
	if err != nil {
		return refuse(wire.CodeUnavailable, 5*time.Second, err)
	}
	resume, err := ses.join(srv.hard, l)
	if err != nil {
		return refuse(wire.CodeUnavailable, 5*time.Second, err)
	}
	_, err = carrier.Write(wire.AppendWelcome(nil, wire.Welcome{
		Version:    min(hello.Version, wire.Version),
		MaxFrame:   uint64(c.opt.Limits.MaxFrame),
		MaxUnacked: uint64(c.opt.Limits.Unacked),
		Wall:       time.Now().UnixNano(),
		Lanes:      resume,
		Instance:   c.id,
	}))
	if err == nil {
		err = carrier.SetDeadline(time.Time{})
	}
	if err != nil {
		ses.leave(l)
		return nil, nil, fmt.Errorf("send welcome: %w", err)
	}
	return l, nil, nil
}

// session finds the session a Hello asks for, or begins it: a new life of the
// gateway's store supersedes the old one. Streams stay when only the gateway's
// process is new, because their sequence numbers are the same.
func (c *Collector) session(hello wire.Hello) (*session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.sessions[hello.Gateway]
	if old != nil && old.epoch == hello.Epoch {
		return old, nil
	}
	if old == nil && len(c.sessions) >= c.opt.Limits.Sessions && !c.evict() {
		return nil, fmt.Errorf("%d gateways are connected, which is the limit: raise it or use another collector", len(c.sessions))
	}
	s := newSession(c, hello)
	c.sessions[hello.Gateway] = s
	if old != nil {
		old.supersede(errEpoch)
	}
	return s, nil
}

// evict forgets the session without carriers and unwritten readings that was
// heard from least recently. The caller holds mu.
func (c *Collector) evict() bool {
	var oldest *session
	for _, s := range c.sessions {
		if s.idle() && (oldest == nil || s.lastSeen.Load() < oldest.lastSeen.Load()) {
			oldest = s
		}
	}
	if oldest == nil {
		return false
	}
	oldest.supersede(errReplaced)
	delete(c.sessions, oldest.gateway)
	return true
}
