package wire

import (
	"encoding/binary"

	"sluice/reading"
)

const magic = "SLUICE"

// lengthSpace is room for the longest length of a message, a 32-bit uvarint.
const lengthSpace = 5

// begin leaves room for a message's length and writes its type.
func begin(dst []byte, t Type) (out []byte, start int) {
	start = len(dst)
	dst = append(dst, make([]byte, lengthSpace)...)
	return append(dst, byte(t)), start
}

// finish writes the length and closes the space that it did not need.
func finish(dst []byte, start int) []byte {
	body := dst[start+lengthSpace:]
	var length [binary.MaxVarintLen64]byte
	n := binary.PutUvarint(length[:], uint64(len(body)))
	copy(dst[start:], length[:n])
	copy(dst[start+n:], body)
	return dst[:start+n+len(body)]
}

// AppendHello appends h as a message.
func AppendHello(dst []byte, h Hello) []byte {
	dst, start := begin(dst, TypeHello)
	dst = append(dst, magic...)
	dst = binary.AppendUvarint(dst, h.Version)
	dst = appendText(dst, h.Gateway)
	dst = append(dst, h.Session[:]...)
	dst = binary.BigEndian.AppendUint64(dst, h.Epoch)
	dst = appendText(dst, h.Carrier)
	dst = binary.AppendUvarint(dst, h.Capabilities)
	dst = binary.AppendUvarint(dst, h.Keepalive)
	return finish(dst, start)
}

// AppendWelcome appends w as a message.
func AppendWelcome(dst []byte, w Welcome) []byte {
	dst, start := begin(dst, TypeWelcome)
	dst = binary.AppendUvarint(dst, w.Version)
	dst = binary.AppendUvarint(dst, w.Capabilities)
	dst = binary.AppendUvarint(dst, w.MaxFrame)
	dst = binary.AppendUvarint(dst, w.MaxUnacked)
	dst = binary.BigEndian.AppendUint64(dst, uint64(w.Wall))
	dst = binary.AppendUvarint(dst, reading.Lanes)
	for _, r := range w.Lanes {
		dst = binary.AppendUvarint(dst, r.Durable)
		dst = binary.AppendUvarint(dst, r.Received-r.Durable)
	}
	dst = binary.BigEndian.AppendUint64(dst, w.Instance)
	return finish(dst, start)
}

// AppendReject appends r as a message.
func AppendReject(dst []byte, r Reject) []byte {
	dst, start := begin(dst, TypeReject)
	dst = binary.AppendUvarint(dst, uint64(r.Code))
	dst = appendText(dst, r.Reason)
	dst = binary.AppendUvarint(dst, r.RetryAfter)
	return finish(dst, start)
}

// AppendData appends d as a message. The segments must ascend from d.Prev.
func AppendData(dst []byte, d Data) []byte {
	dst, start := begin(dst, TypeData)
	dst = binary.AppendUvarint(dst, uint64(d.Lane))
	dst = binary.AppendUvarint(dst, d.Prev)
	dst = binary.AppendUvarint(dst, uint64(len(d.Segments)))
	last := d.Prev
	for _, s := range d.Segments {
		dst = binary.AppendUvarint(dst, s.First-last-1)
		dst = binary.AppendUvarint(dst, uint64(s.Count))
		dst = binary.AppendUvarint(dst, uint64(len(s.Data)))
		dst = append(dst, s.Data...)
		last = s.Last()
	}
	dst = binary.AppendUvarint(dst, d.Through-last)
	return finish(dst, start)
}

// AppendAck appends a as a message.
func AppendAck(dst []byte, a Ack) []byte {
	dst, start := begin(dst, TypeAck)
	dst = binary.AppendUvarint(dst, uint64(len(a.Lanes)))
	for _, l := range a.Lanes {
		dst = binary.AppendUvarint(dst, uint64(l.Lane))
		dst = binary.AppendUvarint(dst, l.Durable)
		dst = binary.AppendUvarint(dst, uint64(len(l.Received)))
		last := l.Durable
		for _, r := range l.Received {
			dst = binary.AppendUvarint(dst, r.First-last-1)
			dst = binary.AppendUvarint(dst, r.Last-r.First)
			last = r.Last
		}
	}
	return finish(dst, start)
}

// AppendPing appends a Ping that a Pong with the same id answers.
func AppendPing(dst []byte, id uint64) []byte { return appendNumber(dst, TypePing, id) }

// AppendPong appends the answer to a Ping.
func AppendPong(dst []byte, id uint64) []byte { return appendNumber(dst, TypePong, id) }

// AppendDrain appends a Drain.
func AppendDrain(dst []byte) []byte {
	dst, start := begin(dst, TypeDrain)
	return finish(dst, start)
}

// AppendClose appends c as a message.
func AppendClose(dst []byte, c Close) []byte {
	dst, start := begin(dst, TypeClose)
	dst = binary.AppendUvarint(dst, uint64(c.Code))
	dst = appendText(dst, c.Reason)
	return finish(dst, start)
}

func appendNumber(dst []byte, t Type, v uint64) []byte {
	dst, start := begin(dst, t)
	return finish(binary.AppendUvarint(dst, v), start)
}

// appendText cuts a text at MaxName bytes: reasons may quote long errors.
func appendText(dst []byte, s string) []byte {
	s = s[:min(len(s), MaxName)]
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}
