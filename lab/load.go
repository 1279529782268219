package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// LoadOptions say who publishes what to which broker.
type LoadOptions struct {
	Address  string  // the broker's, "127.0.0.1:1883"
	Dial     Dialer  // nil for an ordinary dialer
	Feeds    []Feed  // one publisher each
	Window   int     // QoS 1 messages that a publisher has unacknowledged at most
	Messages uint64  // per publisher; 0 to go on until Stop
	Rate     float64 // messages/s per publisher; 0 for as fast as acknowledged
	// Resume is the message to begin with, of each publisher: every one below
	// was acknowledged in an earlier run. Those of the first window may have
	// been sent then, so they are marked DUP.
	Resume uint64
}

// Load is a set of QoS 1 publishers with persistent sessions: whatever happens
// to the connection, a message is sent again, marked DUP and in order, until it
// is acknowledged.
type Load struct {
	publishers []*publisher
	stopped    chan struct{}
	stopOnce   sync.Once
	cancel     context.CancelFunc
	done       chan struct{}
	reconnects atomic.Uint64
}

// StartLoad starts the publishers. They end when they are done, when Stop was
// called and everything is acknowledged, or with ctx.
func StartLoad(ctx context.Context, o LoadOptions) *Load {
	if o.Dial == nil {
		o.Dial = (&net.Dialer{}).DialContext
	}
	ctx, cancel := context.WithCancel(ctx)
	l := &Load{stopped: make(chan struct{}), cancel: cancel, done: make(chan struct{})}
	var wg sync.WaitGroup
	for i, feed := range o.Feeds {
		p := &publisher{
			load: l, o: o, feed: feed,
			client: fmt.Sprintf("lab-publisher-%d", i),
			wake:   make(chan struct{}, 1),
			base:   o.Resume,
			next:   o.Resume,
		}
		l.publishers = append(l.publishers, p)
		wg.Go(func() { p.run(ctx) })
	}
	go func() {
		wg.Wait()
		cancel()
		close(l.done)
	}()
	return l
}

// Stop ends the sending of new messages; those already sent are still repeated
// until they are acknowledged.
func (l *Load) Stop() { l.stopOnce.Do(func() { close(l.stopped) }) }

// Done is closed when every publisher has ended.
func (l *Load) Done() <-chan struct{} { return l.done }

// Wait waits until every message is acknowledged, or until ctx ends; then it
// gives up on the rest and says how many there are.
func (l *Load) Wait(ctx context.Context) error {
	select {
	case <-l.done:
	case <-ctx.Done():
		l.cancel()
		<-l.done
	}
	if open := l.Sent() - l.Acked(); open > 0 {
		return fmt.Errorf("publish to broker: %d of %d messages were never acknowledged", open, l.Sent())
	}
	return nil
}

// Sent returns how many different messages were sent at least once.
func (l *Load) Sent() uint64 {
	var sum uint64
	for _, p := range l.publishers {
		p.mu.Lock()
		sum += p.next - p.o.Resume
		p.mu.Unlock()
	}
	return sum
}

// Acked returns how many messages the broker has acknowledged.
func (l *Load) Acked() uint64 {
	var sum uint64
	for _, p := range l.publishers {
		sum += p.count.Load()
	}
	return sum
}

// Positions returns, for each publisher, the message to resume with: every one
// below is acknowledged.
func (l *Load) Positions() []uint64 {
	var at []uint64
	for _, p := range l.publishers {
		p.mu.Lock()
		at = append(at, p.base)
		p.mu.Unlock()
	}
	return at
}

// Reconnects returns how often a publisher had to connect again.
func (l *Load) Reconnects() uint64 { return l.reconnects.Load() }

// publisher is one client of the broker.
type publisher struct {
	load   *Load
	o      LoadOptions
	feed   Feed
	client string
	wake   chan struct{} // the window has room again
	count  atomic.Uint64

	mu    sync.Mutex // guards the fields below
	base  uint64     // every message below is acknowledged
	next  uint64     // every message below was sent
	acked bitset
}

func (p *publisher) run(ctx context.Context) {
	for first := true; ctx.Err() == nil; first = false {
		if !first {
			p.load.reconnects.Add(1)
			if !pause(ctx, 20*time.Millisecond) {
				return
			}
		}
		c, err := dialMQTT(ctx, p.o.Dial, p.o.Address, p.client, false)
		if err != nil {
			continue
		}
		if p.serve(ctx, c) {
			return
		}
	}
}

// serve publishes over one connection and reports whether all is done.
func (p *publisher) serve(ctx context.Context, c *mqttConn) bool {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { c.Close() })
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer cancel()
		p.readAcks(c)
	}()
	finished := p.write(ctx, c)
	if finished {
		// Closing the session as well keeps the broker from storing for a
		// client that never returns.
		c.Write([]byte{mqttDisconnect, 0})
	}
	stop()
	cancel()
	c.Close()
	<-read
	return finished
}

// write sends what is unacknowledged, then new messages as the window and the
// rate allow. It reports whether everything is acknowledged and no more is to
// come.
func (p *publisher) write(ctx context.Context, c *mqttConn) bool {
	var buf, payload []byte
	p.mu.Lock()
	for m := p.base; m < p.next; m++ {
		if !p.acked.has(m) {
			var topic string
			topic, payload = p.feed.Compose(payload[:0], m)
			buf = appendPublish(buf, topic, payload, packetID(m), true)
		}
	}
	start, sent := time.Now(), p.next
	p.mu.Unlock()
	if _, err := c.Write(buf); err != nil {
		return false
	}
	for {
		buf = buf[:0]
		stopping := closed(p.load.stopped)
		p.mu.Lock()
		limit := p.base + uint64(p.o.Window)
		if p.o.Messages > 0 {
			limit = min(limit, p.o.Messages)
		}
		var wait time.Duration
		if p.o.Rate > 0 {
			due := sent + uint64(time.Since(start).Seconds()*p.o.Rate)
			if due < limit {
				limit = due
				wait = time.Until(start.Add(time.Duration(float64(due+1-sent) / p.o.Rate * float64(time.Second))))
			}
		}
		if stopping {
			limit = p.next
		}
		for p.next < limit && len(buf) < 32<<10 {
			var topic string
			topic, payload = p.feed.Compose(payload[:0], p.next)
			again := p.o.Resume > 0 && p.next < p.o.Resume+uint64(p.o.Window)
			buf = appendPublish(buf, topic, payload, packetID(p.next), again)
			p.next++
		}
		idle := p.base == p.next
		ended := stopping || p.o.Messages > 0 && p.next == p.o.Messages
		p.mu.Unlock()
		if len(buf) > 0 {
			if _, err := c.Write(buf); err != nil {
				return false
			}
			continue
		}
		if idle && ended {
			return true
		}
		if !p.await(ctx, wait, stopping) {
			return false
		}
	}
}

// await returns when acknowledgements came, the next message is due (after
// wait, if that is not zero) or the load is being stopped; false when the
// connection has ended.
func (p *publisher) await(ctx context.Context, wait time.Duration, stopping bool) bool {
	var due <-chan time.Time
	if wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		due = t.C
	}
	stopped := p.load.stopped
	if stopping {
		stopped = nil
	}
	select {
	case <-p.wake:
	case <-due:
	case <-stopped:
	case <-ctx.Done():
		return false
	}
	return true
}

// readAcks marks what the broker acknowledges, until the connection ends.
func (p *publisher) readAcks(c *mqttConn) {
	for {
		kind, body, err := c.next()
		if err != nil {
			return
		}
		if kind != mqttPuback {
			continue
		}
		id, err := pubackID(body)
		if err != nil {
			return
		}
		if err := p.acknowledge(id); err != nil {
			return
		}
		if !c.buffered() {
			select {
			case p.wake <- struct{}{}:
			default:
			}
		}
	}
}

var errUnknownID = errors.New("PUBACK for a packet that is not in flight")

func (p *publisher) acknowledge(id uint16) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	m, ok := messageOf(id, p.base)
	if !ok || m >= p.next {
		return errUnknownID
	}
	if p.acked.set(m) {
		p.count.Add(1)
	}
	for p.base < p.next && p.acked.has(p.base) {
		p.base++
	}
	return nil
}

// packetID returns the packet identifier of message m: identifiers are never 0.
func packetID(m uint64) uint16 { return uint16(1 + m%65535) }

// messageOf returns the first message at or after base whose packet has the
// identifier id.
func messageOf(id uint16, base uint64) (uint64, bool) {
	if id == 0 {
		return 0, false
	}
	ahead := (uint64(id) - 1 + 65535 - base%65535) % 65535
	return base + ahead, true
}

// bitset is a growing set of small numbers.
type bitset []uint64

func (b bitset) has(i uint64) bool {
	return i/64 < uint64(len(b)) && b[i/64]&(1<<(i%64)) != 0
}

// set adds i and reports whether it was new.
func (b *bitset) set(i uint64) bool {
	for uint64(len(*b)) <= i/64 {
		*b = append(*b, 0)
	}
	old := (*b)[i/64]
	(*b)[i/64] = old | 1<<(i%64)
	return old != (*b)[i/64]
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// pause waits for d; false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
