package wire

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"sluice/reading"
)

// maxCount bounds the readings that a segment may claim, so that a damaged
// count cannot move a lane far ahead.
const maxCount = math.MaxUint16

// DecodeHello reads a Hello's body. A version other than this package's is not
// an error: only the fields up to the session's are the same in all versions.
func DecodeHello(body []byte) (Hello, error) {
	p := parser{b: body}
	if string(p.take(len(magic))) != magic {
		return Hello{}, ErrMagic
	}
	var h Hello
	h.Version = p.uvarint()
	h.Gateway = p.text()
	copy(h.Session[:], p.take(len(h.Session)))
	h.Epoch = p.fixed64()
	h.Carrier = p.text()
	h.Capabilities = p.uvarint()
	h.Keepalive = p.uvarint()
	return h, p.err("hello")
}

// DecodeWelcome reads a Welcome's body.
func DecodeWelcome(body []byte) (Welcome, error) {
	p := parser{b: body}
	var w Welcome
	w.Version = p.uvarint()
	w.Capabilities = p.uvarint()
	w.MaxFrame = p.uvarint()
	w.MaxUnacked = p.uvarint()
	w.Wall = int64(p.fixed64())
	if p.uvarint() != reading.Lanes {
		p.bad = true
	}
	for i := range w.Lanes {
		r := &w.Lanes[i]
		r.Durable = p.uvarint()
		r.Received = p.sum(r.Durable, p.uvarint())
	}
	w.Instance = p.fixed64()
	return w, p.err("welcome")
}

// DecodeReject reads a Reject's body.
func DecodeReject(body []byte) (Reject, error) {
	p := parser{b: body}
	r := Reject{Code: Code(p.uvarint()), Reason: p.text(), RetryAfter: p.uvarint()}
	return r, p.err("reject")
}

// DecodeData reads a Data message's body. Its segments are appended to into and
// share body's memory.
func DecodeData(body []byte, into []reading.Segment) (Data, error) {
	p := parser{b: body}
	d := Data{Lane: p.lane(), Prev: p.uvarint(), Segments: into}
	last := d.Prev
	for n := p.uvarint(); n > 0 && !p.bad; n-- {
		var s reading.Segment
		s.First = p.sum(p.sum(last, p.uvarint()), 1)
		count := p.uvarint()
		if count < 1 || count > maxCount {
			p.bad = true
			break
		}
		s.Count = int(count)
		s.Data = p.block()
		last = p.sum(s.First, count-1)
		d.Segments = append(d.Segments, s)
	}
	d.Through = p.sum(last, p.uvarint())
	return d, p.err("data")
}

// DecodeAck reads an Ack's body.
func DecodeAck(body []byte) (Ack, error) {
	p := parser{b: body}
	n := p.uvarint()
	if n > reading.Lanes {
		p.bad = true
	}
	var a Ack
	for ; n > 0 && !p.bad; n-- {
		l := LaneAck{Lane: p.lane(), Durable: p.uvarint()}
		ranges := p.uvarint()
		if ranges > MaxRanges {
			p.bad = true
		}
		last := l.Durable
		for ; ranges > 0 && !p.bad; ranges-- {
			var r Range
			r.First = p.sum(p.sum(last, p.uvarint()), 1)
			r.Last = p.sum(r.First, p.uvarint())
			last = r.Last
			l.Received = append(l.Received, r)
		}
		a.Lanes = append(a.Lanes, l)
	}
	return a, p.err("ack")
}

// DecodeNumber reads the body of a Ping or a Pong: its id.
func DecodeNumber(body []byte) (uint64, error) {
	p := parser{b: body}
	id := p.uvarint()
	return id, p.err("ping")
}

// DecodeClose reads a Close's body.
func DecodeClose(body []byte) (Close, error) {
	p := parser{b: body}
	c := Close{Code: Code(p.uvarint()), Reason: p.text()}
	return c, p.err("close")
}

// parser takes fields from the front of b; after the first fault every field is
// zero and bad stays set.
type parser struct {
	b   []byte
	bad bool
}

func (p *parser) err(what string) error {
	if p.bad {
		return fmt.Errorf("%s: %w", what, ErrMalformed)
	}
	return nil
}

func (p *parser) uvarint() uint64 {
	v, n := binary.Uvarint(p.b)
	if p.bad || n <= 0 {
		p.bad = true
		return 0
	}
	p.b = p.b[n:]
	return v
}

func (p *parser) take(n int) []byte {
	if p.bad || n < 0 || n > len(p.b) {
		p.bad = true
		return nil
	}
	b := p.b[:n:n]
	p.b = p.b[n:]
	return b
}

func (p *parser) fixed64() uint64 {
	b := p.take(8)
	if b == nil {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

func (p *parser) block() []byte {
	n := p.uvarint()
	if n > uint64(len(p.b)) {
		p.bad = true
		return nil
	}
	return p.take(int(n))
}

func (p *parser) text() string {
	b := p.block()
	if len(b) > MaxName {
		p.bad = true
		return ""
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

func (p *parser) lane() reading.Lane {
	v := p.uvarint()
	if v >= reading.Lanes {
		p.bad = true
		return 0
	}
	return reading.Lane(v)
}

// sum refuses sequence numbers that would run over.
func (p *parser) sum(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		p.bad = true
		return 0
	}
	return a + b
}
