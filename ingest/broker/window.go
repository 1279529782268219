package broker

import (
	"errors"
	"sync"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"

	"sluice/ingest"
)

const (
	// refusalPause is how long a client that cannot be told why its publish
	// was refused is kept waiting before it is disconnected, so that it does
	// not reconnect and send again in a tight loop.
	refusalPause = time.Second
	// reasonMaximum bounds a reason string, in bytes: with it, every length in
	// an acknowledgement fits one byte.
	reasonMaximum = 100
)

// window holds a connection's publishes between their arrival and their
// acknowledgement, and acknowledges them in the order of arrival (MQTT 5.0,
// 4.6), whatever the order in which they were settled.
type window struct {
	conn *conn

	mu       sync.Mutex // guards what follows
	space    sync.Cond  // there may be room again, or the connection has ended
	queue    []*slot    // a ring: count slots from head on
	head     int
	count    int
	free     []*slot
	scratch  []byte // for encoding
	refusing bool   // the client is about to be disconnected
	closed   bool
	brief    bool // the client wants no reason strings
	answers5 bool // the client speaks MQTT 5: acknowledgements carry reasons
}

// slot is one publish in the window.
type slot struct {
	window  *window
	id      uint16
	kind    byte // of the acknowledgement: packets.Puback or packets.Pubrec
	settled bool
	code    packets.Code
	// done is slot.report, bound once: a slot is used again and again.
	done func(error)
}

func newWindow(c *conn) *window {
	w := &window{conn: c, queue: make([]*slot, 16)}
	w.space.L = &w.mu
	return w
}

// configure is called when the client's CONNECT is known.
func (w *window) configure(cl *mqtt.Client) {
	p := &cl.Properties
	w.answers5 = p.ProtocolVersion == 5
	w.brief = p.Props.RequestProblemInfoFlag && p.Props.RequestProblemInfo == 0 ||
		p.Props.MaximumPacketSize > 0 && p.Props.MaximumPacketSize < reasonMaximum+16
}

// open takes a slot for a publish. It blocks while the window is full or the
// client is about to be disconnected, and returns nil once the connection has
// ended. One goroutine at a time calls it.
func (w *window) open(id uint16, kind byte) *slot {
	w.mu.Lock()
	defer w.mu.Unlock()
	for !w.closed && (w.count >= windowSize || w.refusing) {
		w.space.Wait()
	}
	if w.closed {
		return nil
	}
	var s *slot
	if n := len(w.free); n > 0 {
		s, w.free = w.free[n-1], w.free[:n-1]
	} else {
		s = &slot{window: w}
		s.done = s.report
	}
	s.id, s.kind, s.settled, s.code = id, kind, false, packets.CodeSuccess
	if w.count == len(w.queue) {
		larger := make([]*slot, 2*w.count)
		n := copy(larger, w.queue[w.head:])
		copy(larger[n:], w.queue[:w.head])
		w.queue, w.head = larger, 0
	}
	w.queue[(w.head+w.count)%len(w.queue)] = s
	w.count++
	return s
}

// waits reports whether a QoS 2 publish with this identifier is in the window.
func (w *window) waits(id uint16) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.count {
		if s := w.queue[(w.head+i)%len(w.queue)]; s.id == id && s.kind == packets.Pubrec {
			return true
		}
	}
	return false
}

// report is called by the sink.
func (s *slot) report(err error) {
	code := packets.CodeSuccess
	if err != nil {
		code = refusalCode(err)
		w := s.window
		w.conn.broker.refused(w.conn, code, err)
		if !w.answers5 {
			w.conn.endOrder(err)
		}
	}
	s.settle(code)
}

// refusalCode is what a client is told of an error of the sink.
func refusalCode(err error) packets.Code {
	if errors.Is(err, ingest.ErrFull) || errors.Is(err, ingest.ErrBusy) {
		return packets.Code{Code: packets.ErrQuotaExceeded.Code, Reason: err.Error()}
	}
	return packets.Code{Code: packets.ErrImplementationSpecificError.Code, Reason: err.Error()}
}

// settle completes the publish with a reason code and queues whatever can be
// acknowledged now. It does not block.
func (s *slot) settle(code packets.Code) {
	w := s.window
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		// The client sends it again on its next connection. If it is durable
		// already, the sink knows it by its receipt.
		return
	}
	s.settled, s.code = true, code
	for w.count > 0 && w.queue[w.head].settled && !w.refusing {
		s := w.queue[w.head]
		w.queue[w.head] = nil
		w.head = (w.head + 1) % len(w.queue)
		w.count--
		w.acknowledge(s)
		w.free = append(w.free, s)
		// Woken at every slot, a reader at the limit would take one publish a
		// time.
		if w.count == windowSize*3/4 {
			w.space.Signal()
		}
	}
}

// acknowledge queues the acknowledgement of s. The caller holds w.mu.
func (w *window) acknowledge(s *slot) {
	failed := s.code.Code >= packets.ErrUnspecifiedError.Code
	if s.kind == packets.Pubrec {
		// Before MQTT 5 a refused publish stays with the client, who sends it
		// again under the same identifier.
		if !failed {
			w.conn.session.hold(s.id)
		} else if w.answers5 {
			w.conn.session.release(s.id)
		}
	}
	if failed && !w.answers5 {
		w.refusing = true
		cl, code := w.conn.client, s.code
		time.AfterFunc(refusalPause, func() { cl.Stop(code) })
		return
	}
	w.answer(s.kind, s.id, s.code)
}

// complete answers a PUBREL.
func (w *window) complete(id uint16, code packets.Code) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer(packets.Pubcomp, id, code)
}

// answer sends an acknowledgement (MQTT 5.0, 3.4, 3.5 and 3.7): without a
// reason code, which means success, it is the same in both versions. The caller
// holds w.mu.
func (w *window) answer(kind byte, id uint16, code packets.Code) {
	const reasonString = 0x1f
	out := append(w.scratch[:0], kind<<4, 2, byte(id>>8), byte(id))
	if code.Code >= packets.ErrUnspecifiedError.Code && w.answers5 {
		out = append(out, code.Code)
		if reason := clip(code.Reason, reasonMaximum); reason != "" && !w.brief {
			n := byte(len(reason))
			out = append(out, 3+n, reasonString, 0, n)
			out = append(out, reason...)
		}
		out[1] = byte(len(out) - 2)
	}
	w.scratch = out
	_ = w.conn.outbox.write(out) // fails only when the connection has ended
}

// close forgets all publishes: from now on settling them does nothing.
func (w *window) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.queue, w.count, w.free = nil, 0, nil
	w.space.Broadcast()
}

// clip shortens s to at most n bytes without splitting a character.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xc0 == 0x80 {
		n--
	}
	return s[:n]
}
