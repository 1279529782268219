// Package probe measures a path with small UDP packets that the far end sends
// back: whether they return, how long they take, and which sizes pass. It works
// on paths that carry nothing else, where a transport would know nothing.
//
// A probe is 40 bytes with its IPv4 and UDP headers, 60 with IPv6; its answer as
// many. At one a minute that is 115 kB a day.
package probe

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

const (
	// A modem that has stopped lets the socket's buffer run full; what cannot be
	// sent by then counts as lost.
	writeTimeout = 100 * time.Millisecond
	readRetry    = 100 * time.Millisecond

	fitTries     = 3
	fitWaitLeast = 300 * time.Millisecond // two packets of 1500 bytes take that at 80 kbit/s

	headersIPv4 = 20 + 8 // IP and UDP
	headersIPv6 = 40 + 8
	sizeMost    = 65535
)

// Options configures a Prober.
type Options struct {
	// Conn sends and receives the probes, and nothing else. It is bound to the
	// path, not connected. The caller closes it, after Run has returned.
	Conn net.PacketConn
	// Remote is where a responder listens.
	Remote netip.AddrPort
	// Interval is the pace at the start, as with Prober.Pace.
	Interval time.Duration
}

// Stats is what is known of a path. Counters only grow: the loss between two
// moments is the growth of Lost by that of Sent.
type Stats struct {
	Sent     uint64 // probes, also those that the socket refused
	Answered uint64 // probes answered, in time or later
	Lost     uint64 // probes that were not answered in time; those that still may be do not count yet

	RTT, RTTVar time.Duration // smoothed round trip and its variation (RFC 6298); 0 before the first answer
	Latest      time.Duration // the round trip of the latest answer
	Last        time.Time     // when the latest answer arrived; zero if none has
	// Unanswered is how many probes have timed out since something was heard: of
	// those sent after the latest that was answered. An answer, late or not,
	// makes it 0.
	Unanswered int
	// Timeout is how long the next probe may take: RTT + 4 RTTVar, from 100 ms to
	// 10 s, and 1 s before the first answer.
	Timeout time.Duration
}

// Prober sends probes to one address from one socket and counts what comes back.
type Prober struct {
	conn   net.PacketConn
	remote net.Addr
	header int           // bytes of IP and UDP before a probe
	paced  chan struct{} // the interval has changed

	mu       sync.Mutex // guards what follows
	interval time.Duration
	ledger   ledger
	padded   map[uint64]chan<- struct{} // padded probes in flight, and whom to tell of the answer
}

// New returns a Prober that does nothing until Run. On Linux it forbids that
// packets from the socket are fragmented, and has the kernel try sizes that it
// believes do not pass.
func New(opt Options) (*Prober, error) {
	if opt.Conn == nil || !opt.Remote.IsValid() {
		return nil, fmt.Errorf("probe %s: a socket and a remote address are needed", opt.Remote)
	}
	if err := forbidFragments(opt.Conn); err != nil {
		return nil, fmt.Errorf("probe %s: %w", opt.Remote, err)
	}
	p := &Prober{
		conn: opt.Conn, remote: net.UDPAddrFromAddrPort(opt.Remote), header: headersIPv4,
		paced: make(chan struct{}, 1), interval: opt.Interval, padded: map[uint64]chan<- struct{}{},
	}
	if opt.Remote.Addr().Unmap().Is6() {
		p.header = headersIPv6
	}
	return p, nil
}

// Pace has a probe sent every interval from now on, counted from the latest one,
// so that a shorter interval takes effect at once. None are sent at 0 or less.
// It never blocks.
func (p *Prober) Pace(interval time.Duration) {
	p.mu.Lock()
	p.interval = interval
	p.mu.Unlock()
	select {
	case p.paced <- struct{}{}:
	default: // Run is about to look
	}
}

// Stats returns the account as of now.
func (p *Prober) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ledger.expire(time.Now())
	s := p.ledger.stats
	s.Timeout = p.ledger.timeout()
	return s
}

// Run probes until ctx ends, the first time at once. It fails only if the socket
// is closed. It must be called once.
func (p *Prober) Run(ctx context.Context) error {
	var err error
	read := make(chan struct{})
	go func() {
		defer close(read)
		err = p.read(ctx)
	}()
	p.send(ctx, read)
	p.conn.SetReadDeadline(time.Now()) // ends the read; fails on a closed socket, where it has ended
	<-read
	return err
}

// send returns when ctx ends, or the reading.
func (p *Prober) send(ctx context.Context, read <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var sent time.Time
	for {
		p.mu.Lock()
		interval := p.interval
		p.mu.Unlock()
		var due <-chan time.Time // never, if paused
		if interval > 0 {
			timer.Reset(time.Until(sent.Add(interval))) // at once at first
			due = timer.C
		}
		select {
		case <-ctx.Done():
			return
		case <-read:
			return
		case <-p.paced:
		case <-due:
			sent = time.Now()
			p.probe(sent)
		}
	}
}

// probe sends one. That the socket refuses it, for want of a route or because the
// interface is gone, is a loss as any other.
func (p *Prober) probe(now time.Time) {
	random := randomIdentity()
	p.mu.Lock()
	identity := p.ledger.send(now, random)
	p.mu.Unlock()
	_ = p.write(identity, packetLen)
}

func (p *Prober) write(identity uint64, size int) error {
	p.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, err := p.conn.WriteTo(appendPacket(nil, request, identity, size), p.remote)
	return err
}

// read takes answers, from whatever address they come: who knows the identity
// has seen the probe. It returns nil when ctx has ended.
func (p *Prober) read(ctx context.Context) error {
	return readAll(ctx, p.conn, make([]byte, packetLen), func(b []byte, _ net.Addr) {
		kind, identity := parsePacket(b)
		if kind != answer {
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if told, ok := p.padded[identity]; ok {
			delete(p.padded, identity)
			told <- struct{}{} // has room for every try
			return
		}
		p.ledger.hear(time.Now(), identity)
	})
}

// Fits finds out whether packets of size bytes, IP header included, pass in both
// directions, while Run runs: it sends up to three, unfragmented, each with a
// small one behind it. If the small ones are answered and those of that size are
// not, it is false. If none are, the path is silent, which is an error: it says
// nothing about sizes.
func (p *Prober) Fits(ctx context.Context, size int) (bool, error) {
	payload := size - p.header
	if payload < packetLen || size > sizeMost {
		return false, fmt.Errorf("probe %s with %d bytes: the size must be from %d to %d", p.remote, size, p.header+packetLen, sizeMost)
	}
	began := p.Stats()
	fits := make(chan struct{}, fitTries)
	var identities []uint64
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, id := range identities {
			delete(p.padded, id)
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var refused error
	for range fitTries {
		identity := randomIdentity()
		identities = append(identities, identity)
		p.mu.Lock()
		p.padded[identity] = fits
		p.mu.Unlock()
		if refused = p.write(identity, payload); errors.Is(refused, syscall.EMSGSIZE) {
			return false, nil // more than the interface takes
		}
		p.probe(time.Now())
		timer.Reset(max(began.Timeout, fitWaitLeast))
		select {
		case <-fits:
			return true, nil
		case <-timer.C:
		case <-ctx.Done():
			return false, fmt.Errorf("probe %s with %d bytes: %w", p.remote, size, ctx.Err())
		}
	}
	if p.Stats().Answered == began.Answered {
		if refused != nil {
			return false, fmt.Errorf("probe %s with %d bytes: %w", p.remote, size, refused)
		}
		return false, fmt.Errorf("probe %s with %d bytes: %w: see that a responder runs there", p.remote, size, ErrSilent)
	}
	return false, nil
}

// ErrSilent is returned when small probes are not answered either.
var ErrSilent = errors.New("nothing is answered")

func randomIdentity() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return binary.NativeEndian.Uint64(b[:])
}

// readAll gives each packet to take, until ctx ends (nil) or the socket is closed
// (its error). Whoever ends ctx sets a read deadline.
func readAll(ctx context.Context, conn net.PacketConn, b []byte, take func(b []byte, from net.Addr)) error {
	for {
		n, from, err := conn.ReadFrom(b)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("probe socket %s: %w", conn.LocalAddr(), net.ErrClosed)
		case err != nil:
			// Something of the moment, such as too little memory.
			select {
			case <-time.After(readRetry):
			case <-ctx.Done():
			}
		default:
			take(b[:n], from)
		}
	}
}
