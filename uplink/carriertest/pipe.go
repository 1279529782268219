// Package carriertest tests carriers, and offers one in memory, with a rate, a
// delay and a cut, for testing what runs over them.
package carriertest

import (
	"io"
	"net"
	"os"
	"sync"
	"time"

	"sluice/uplink"
)

// Link describes a path in memory. The zero Link is as fast as memory.
type Link struct {
	Rate   int           // bytes a second in each direction, 0 for no limit
	Delay  time.Duration // one way
	Unsent int           // bytes a write may be ahead of the path at first, 0 for 16 KB
}

// End is one end of a path in memory. It is a carrier, works in a
// testing/synctest bubble, and starts no goroutine.
type End struct {
	peer     string
	in, out  *half
	mu       sync.Mutex // guards the deadlines
	readBy   time.Time
	writeBy  time.Time
	bytesIn  uint64 // guarded by mu
	bytesOut uint64
}

var _ uplink.Carrier = (*End)(nil)

// Pipe returns the two ends of a path; each says that its peer has the name
// given.
func Pipe(l Link, nearPeer, farPeer string) (near, far *End) {
	if l.Unsent == 0 {
		l.Unsent = 16 << 10
	}
	a, b := newHalf(l), newHalf(l)
	return &End{peer: nearPeer, in: b, out: a}, &End{peer: farPeer, in: a, out: b}
}

// Cut makes the path lose everything from now on, without telling either end.
func (e *End) Cut() {
	e.in.cut()
	e.out.cut()
}

// Stall makes the path carry nothing until Resume, and lose nothing.
func (e *End) Stall() { e.stall(true) }

// Resume ends a Stall: what waited arrives at once.
func (e *End) Resume() { e.stall(false) }

func (e *End) stall(on bool) {
	for _, h := range []*half{e.in, e.out} {
		h.mu.Lock()
		h.stalled = on
		h.wake()
		h.mu.Unlock()
	}
}

// Read implements net.Conn.
func (e *End) Read(p []byte) (int, error) {
	n, err := e.in.read(p, func() time.Time { e.mu.Lock(); defer e.mu.Unlock(); return e.readBy })
	e.mu.Lock()
	e.bytesIn += uint64(n)
	e.mu.Unlock()
	return n, err
}

// Write implements net.Conn.
func (e *End) Write(p []byte) (int, error) {
	n, err := e.out.write(p, func() time.Time { e.mu.Lock(); defer e.mu.Unlock(); return e.writeBy })
	e.mu.Lock()
	e.bytesOut += uint64(n)
	e.mu.Unlock()
	return n, err
}

// Close implements net.Conn. The other end reads what was written, then io.EOF.
func (e *End) Close() error {
	e.in.abandon()
	e.out.finish()
	return nil
}

// SetDeadline implements net.Conn.
func (e *End) SetDeadline(t time.Time) error {
	e.SetReadDeadline(t)
	return e.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (e *End) SetReadDeadline(t time.Time) error {
	e.mu.Lock()
	e.readBy = t
	e.mu.Unlock()
	e.in.wakeAll()
	return nil
}

// SetWriteDeadline implements net.Conn.
func (e *End) SetWriteDeadline(t time.Time) error {
	e.mu.Lock()
	e.writeBy = t
	e.mu.Unlock()
	e.out.wakeAll()
	return nil
}

// Peer implements uplink.Carrier.
func (e *End) Peer() string { return e.peer }

// Info implements uplink.Carrier.
func (e *End) Info() uplink.Info {
	unacked := e.out.unacked() // first: a write holds its half and asks for the deadline
	e.mu.Lock()
	defer e.mu.Unlock()
	return uplink.Info{Kind: "memory", BytesIn: e.bytesIn, BytesOut: e.bytesOut, Unacked: unacked, Packet: piece}
}

// LimitUnsent implements uplink.Carrier.
func (e *End) LimitUnsent(bytes int) {
	e.out.mu.Lock()
	defer e.out.mu.Unlock()
	e.out.link.Unsent = bytes
	e.out.wake()
}

// LocalAddr implements net.Conn.
func (e *End) LocalAddr() net.Addr { return address{} }

// RemoteAddr implements net.Conn.
func (e *End) RemoteAddr() net.Addr { return address{} }

type address struct{}

func (address) Network() string { return "memory" }
func (address) String() string  { return "memory" }

// half is one direction.
type half struct {
	link Link

	mu       sync.Mutex // guards what follows
	changed  chan struct{}
	chunks   []chunk
	packets  []packet  // oldest first
	free     time.Time // when the path has sent all it was given
	isCut    bool
	stalled  bool
	finished bool // the writer closed
	gone     bool // the reader closed
}

// chunk is bytes that arrive at an instant.
type chunk struct {
	data []byte
	at   time.Time
}

// packet is bytes that the writer's end hears of at an instant, that they arrived.
type packet struct {
	bytes   int
	ackedAt time.Time
}

// piece is how many bytes travel together.
const piece = 1400

func newHalf(l Link) *half { return &half{link: l, changed: make(chan struct{})} }

func (h *half) wakeAll() {
	h.mu.Lock()
	h.wake()
	h.mu.Unlock()
}

// wake has everyone look again. The caller holds mu.
func (h *half) wake() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// wait lets go of mu until something changed or an instant, the zero one being
// never.
func (h *half) wait(at time.Time) {
	changed := h.changed
	h.mu.Unlock()
	defer h.mu.Lock()
	if at.IsZero() {
		<-changed
		return
	}
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	}
}

func (h *half) cut() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.isCut, h.chunks = true, nil
	h.wake()
}

func (h *half) finish() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.finished = true
	h.wake()
}

func (h *half) abandon() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gone = true
	h.wake()
}

func (h *half) read(p []byte, deadline func() time.Time) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		now, by := time.Now(), deadline()
		switch {
		case h.gone:
			return 0, net.ErrClosed
		case !by.IsZero() && !now.Before(by):
			return 0, os.ErrDeadlineExceeded
		case h.stalled:
		case len(h.chunks) > 0 && !now.Before(h.chunks[0].at):
			c := &h.chunks[0]
			n := copy(p, c.data)
			if c.data = c.data[n:]; len(c.data) == 0 {
				h.chunks = h.chunks[1:]
			}
			return n, nil
		case len(h.chunks) > 0:
			if at := h.chunks[0].at; by.IsZero() || at.Before(by) {
				by = at
			}
		case h.finished && !h.isCut:
			return 0, io.EOF
		}
		h.wait(by)
	}
}

// ahead is how many bytes the path was given and has not sent at an instant.
func (h *half) ahead(now time.Time) int {
	if h.link.Rate == 0 || !h.free.After(now) {
		return 0
	}
	return int(h.free.Sub(now).Seconds() * float64(h.link.Rate))
}

// waiting is how many bytes have not been read.
func (h *half) waiting() (n int) {
	for _, c := range h.chunks {
		n += len(c.data)
	}
	return n
}

// unacked is how many bytes a transport would not know yet to have arrived.
func (h *half) unacked() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forget(time.Now())
	for _, p := range h.packets {
		n += p.bytes
	}
	return n
}

// forget drops the packets that are known to have arrived. The caller holds mu.
func (h *half) forget(now time.Time) {
	for len(h.packets) > 0 && !h.isCut && !h.stalled && !now.Before(h.packets[0].ackedAt) {
		h.packets = h.packets[1:]
	}
}

func (h *half) write(p []byte, deadline func() time.Time) (n int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(p) > 0 {
		now, by := time.Now(), deadline()
		switch {
		case h.finished:
			return n, net.ErrClosed
		case !by.IsZero() && !now.Before(by):
			return n, os.ErrDeadlineExceeded
		case h.gone && !h.isCut:
			return n, io.ErrClosedPipe
		case h.isCut: // like a socket whose peer acknowledges nothing
			h.wait(by)
			continue
		}
		if h.stalled && h.waiting() >= h.link.Unsent { // the path's queue is full
			h.wait(by)
			continue
		}
		if over := h.ahead(now) - h.link.Unsent; over >= 0 {
			at := now.Add(time.Duration(float64(over+1) / float64(h.link.Rate) * float64(time.Second)))
			if by.IsZero() || at.Before(by) {
				by = at
			}
			h.wait(by)
			continue
		}
		data := append([]byte(nil), p[:min(len(p), piece)]...)
		if h.free.Before(now) {
			h.free = now
		}
		if h.link.Rate > 0 {
			h.free = h.free.Add(time.Duration(len(data)) * time.Second / time.Duration(h.link.Rate))
		}
		h.chunks = append(h.chunks, chunk{data: data, at: h.free.Add(h.link.Delay)})
		h.forget(now)
		h.packets = append(h.packets, packet{bytes: len(data), ackedAt: h.free.Add(2 * h.link.Delay)})
		h.wake()
		p, n = p[len(data):], n+len(data)
	}
	return n, nil
}
