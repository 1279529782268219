package broker

import (
	"encoding/binary"
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
// acknowledgement, and writes the acknowledgements in the order of arrival
// (MQTT 5.0, 4.6), whatever the order in which the publishes were settled.
type window struct {
	conn  *conn
	wake  chan struct{} // capacity 1: there is something to write
	space chan struct{} // capacity 1: there may be room again

	mu       sync.Mutex // guards what follows
	queue    []*slot    // a ring: count slots from head on
	head     int
	count    int
	free     []*slot
	out      []byte // acknowledgements to be written
	unsent   int    // packets in out
	refusal  *packets.Code
	running  bool // the writer has been started
	waiting  bool // somebody waits for space
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
	return &window{
		conn:  c,
		wake:  make(chan struct{}, 1),
		space: make(chan struct{}, 1),
		queue: make([]*slot, 16),
	}
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
	if !w.reserve() {
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

// reserve waits for room and starts the writer; a client that only subscribes
// needs none. It returns false once the connection has ended. The caller holds
// w.mu.
func (w *window) reserve() bool {
	for !w.closed && (w.count+w.unsent >= windowSize || w.refusal != nil) {
		w.waiting = true
		w.mu.Unlock()
		select {
		case <-w.space:
		case <-w.conn.ctx.Done():
		}
		w.mu.Lock()
		w.waiting = false
	}
	if !w.closed && !w.running {
		w.running = true
		go w.run()
	}
	return !w.closed
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
		s.window.conn.broker.refused(s.window.conn, code, err)
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
	for w.count > 0 && w.queue[w.head].settled && w.refusal == nil {
		s := w.queue[w.head]
		w.queue[w.head] = nil
		w.head = (w.head + 1) % len(w.queue)
		w.count--
		w.acknowledge(s)
		w.free = append(w.free, s)
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
		code := s.code
		w.refusal = &code
		w.notify()
		return
	}
	w.encode(s.kind, s.id, s.code)
	w.unsent++
}

// complete queues a PUBCOMP; it blocks like open.
func (w *window) complete(id uint16, code packets.Code) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reserve() {
		w.encode(packets.Pubcomp, id, code)
		w.unsent++
	}
}

// encode appends an acknowledgement to what is to be written (MQTT 5.0, 3.4,
// 3.5 and 3.7): without a reason code, which means success, it is the same in
// both versions. The caller holds w.mu.
func (w *window) encode(kind byte, id uint16, code packets.Code) {
	if len(w.out) == 0 {
		w.notify()
	}
	const reasonString = 0x1f
	switch failed := code.Code >= packets.ErrUnspecifiedError.Code; {
	case !failed || !w.answers5:
		w.out = append(w.out, kind<<4, 2)
		w.out = binary.BigEndian.AppendUint16(w.out, id)
	case w.brief || code.Reason == "":
		w.out = append(w.out, kind<<4, 3)
		w.out = binary.BigEndian.AppendUint16(w.out, id)
		w.out = append(w.out, code.Code)
	default:
		reason := clip(code.Reason, reasonMaximum)
		w.out = append(w.out, kind<<4, byte(2+1+1+3+len(reason)))
		w.out = binary.BigEndian.AppendUint16(w.out, id)
		w.out = append(w.out, code.Code, byte(3+len(reason)), reasonString)
		w.out = binary.BigEndian.AppendUint16(w.out, uint16(len(reason)))
		w.out = append(w.out, reason...)
	}
}

// notify wakes the writer.
func (w *window) notify() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run writes acknowledgements until the connection ends.
func (w *window) run() {
	cl := w.conn.client
	var spare []byte
	for {
		select {
		case <-w.wake:
		case <-w.conn.ctx.Done():
			return
		}
		w.mu.Lock()
		out, refusal := w.out, w.refusal
		w.out, w.unsent = spare[:0], 0
		waiting := w.waiting
		w.mu.Unlock()
		if waiting && refusal == nil {
			select {
			case w.space <- struct{}{}:
			default:
			}
		}
		if len(out) > 0 {
			// The library's own writes to this connection hold the same lock.
			cl.Lock()
			_, err := w.conn.Write(out)
			cl.Unlock()
			if err != nil {
				cl.Stop(err)
				return
			}
		}
		spare = out
		if refusal != nil {
			pause := time.NewTimer(refusalPause)
			select {
			case <-pause.C:
			case <-w.conn.ctx.Done():
			}
			pause.Stop()
			cl.Stop(*refusal)
			return
		}
	}
}

// close forgets all publishes: from now on settling them does nothing.
func (w *window) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.queue, w.count, w.free, w.out = nil, 0, nil, nil
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
