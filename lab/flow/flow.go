package flow

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Options say between whom a flow runs and over what.
type Options struct {
	Transport
	From, To Host
	// Local are the sender's addresses, one a path. TCP uses the first; none
	// means any.
	Local []netip.Addr
	// Remote are the receiver's addresses with their common port, one a path.
	// TCP and Multipath TCP connect to the first.
	Remote []netip.AddrPort
}

// Result is what a flow has delivered.
type Result struct {
	Series Series
	Gap    Gap // the longest time in which nothing arrived
	// RTT is the transport's smoothed round trip at the end of each slot, of its
	// first connection; 0 where it was not known.
	RTT []time.Duration
	// Sent and Resent count packets (of TCP: segments, of SCTP: chunks) with
	// data, retransmissions in both, of all connections; 0 where the transport
	// does not tell.
	Sent, Resent uint64
	Product      *Outcome // of a Product; nil of any other
}

// Loss returns the share of packets that were sent again, 0 if none was sent.
func (r Result) Loss() float64 {
	if r.Sent == 0 {
		return 0
	}
	return float64(r.Resent) / float64(r.Sent)
}

// Sender is ready to send as fast as it can.
type Sender interface {
	// Run calls onset once everything is established, then sends, and counts
	// what arrives, for length or until ctx ends. It must be called once, and
	// ends with everything closed.
	Run(ctx context.Context, length time.Duration, onset func() error) (Result, error)
	// Close ends a sender that is not to run.
	Close()
}

// Flow is a set of connections that are established and idle.
type Flow struct {
	pairs []pair
	probe func(net.Conn) counters // of a sending end
}

var _ Sender = (*Flow)(nil)

// pair is one connection's two ends.
type pair struct{ sender, receiver net.Conn }

// counters are what a transport knows of a connection.
type counters struct {
	sent, resent uint64
	rtt          time.Duration
}

// Open connects. It takes as long as the network lets it, but not longer than
// ctx.
func Open(ctx context.Context, o Options) (*Flow, error) {
	f := &Flow{}
	if err := f.open(ctx, o); err != nil {
		f.Close()
		return nil, fmt.Errorf("open flow %s to %v: %w", o.Transport, o.Remote, err)
	}
	return f, nil
}

func (f *Flow) open(ctx context.Context, o Options) error {
	if len(o.Remote) == 0 || o.Connections < 1 {
		return errors.New("no address or no connection is asked for")
	}
	var l net.Listener
	var dial func() (net.Conn, error)
	var listen func() (net.Listener, error)
	switch o.Protocol {
	case TCP, MPTCP:
		f.probe = tcpCounters
		listen = func() (net.Listener, error) { return listenTCP(ctx, o) }
		dial = func() (net.Conn, error) { return dialTCP(ctx, o) }
	case SCTP:
		f.probe = sctpCounters
		listen = func() (net.Listener, error) { return listenSCTP(o) }
		dial = func() (net.Conn, error) { return dialSCTP(ctx, o) }
	default:
		return fmt.Errorf("unknown protocol %q", o.Protocol)
	}
	err := o.To.Do(func() (err error) {
		l, err = listen()
		return err
	})
	if err != nil {
		return err
	}
	defer l.Close()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	for range o.Connections {
		var p pair
		err := o.From.Do(func() (err error) {
			p.sender, err = dial()
			return err
		})
		if err != nil {
			return err
		}
		f.pairs = append(f.pairs, p)
		if p.receiver, err = l.Accept(); err != nil {
			return errors.Join(err, ctx.Err())
		}
		f.pairs[len(f.pairs)-1] = p
	}
	return nil
}

// Run implements Sender: it sends nothing before onset.
func (f *Flow) Run(ctx context.Context, length time.Duration, onset func() error) (Result, error) {
	if err := onset(); err != nil {
		return Result{}, err
	}
	origin := time.Now()
	ctx, cancel := context.WithDeadline(ctx, origin.Add(length))
	defer cancel()
	meter := NewMeter(origin, length)
	var wg sync.WaitGroup
	for _, p := range f.pairs {
		wg.Go(func() { send(p.sender) })
		wg.Go(func() { receive(p.receiver, meter) })
	}
	r := Result{RTT: f.watch(ctx, origin, length)}
	for _, p := range f.pairs {
		c := f.probe(p.sender)
		r.Sent += c.sent
		r.Resent += c.resent
	}
	f.Close()
	wg.Wait()
	r.Series, r.Gap = meter.Series(), meter.Longest()
	return r, nil
}

// watch samples the round trip in each slot, until ctx ends.
func (f *Flow) watch(ctx context.Context, origin time.Time, length time.Duration) []time.Duration {
	samples := make([]time.Duration, length/Interval)
	tick := time.NewTicker(Interval)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			if slot := now.Sub(origin)/Interval - 1; slot >= 0 && int(slot) < len(samples) {
				samples[slot] = f.probe(f.pairs[0].sender).rtt
			}
		case <-ctx.Done():
			return samples
		}
	}
}

// Close ends the connections at once; nothing is sent afterwards.
func (f *Flow) Close() {
	for _, p := range f.pairs {
		for _, c := range []net.Conn{p.sender, p.receiver} {
			if c == nil {
				continue
			}
			// Without lingering the kernel forgets what it has not delivered,
			// which would otherwise fill the link of the next run.
			if l, ok := c.(interface{ SetLinger(int) error }); ok {
				l.SetLinger(0)
			}
			c.Close()
		}
	}
}

// payload is how many bytes are written at once: an SCTP message of that size
// fills a packet of 1500 bytes.
const payload = 1452

// send writes until the connection ends.
func send(c net.Conn) {
	b := make([]byte, payload)
	for {
		if _, err := c.Write(b); err != nil {
			return
		}
	}
}

// receive counts until the connection ends.
func receive(c net.Conn, m *Meter) {
	b := make([]byte, 64<<10)
	for {
		n, err := c.Read(b)
		m.Add(time.Now(), n)
		if err != nil {
			return
		}
	}
}
