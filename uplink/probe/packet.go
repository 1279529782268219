package probe

import "encoding/binary"

// A probe is one UDP packet:
//
//	offset  bytes
//	     0      3  "slp"
//	     3      1  1 is a request, 2 an answer
//	     4      8  identity, big-endian: random, so that nobody off the path can
//	               answer what he has not seen; the lowest byte is its place in
//	               the prober's ledger
//	    12      n  padding, any bytes
//
// An answer is the request with another kind, so it is never longer, and two
// responders set upon each other by a forged source have nothing to say. When a
// probe left is kept by the prober, not sent along: it costs nothing on the way
// and cannot be forged.
const (
	magic      = "slp"
	kindAt     = len(magic)
	identityAt = kindAt + 1
	packetLen  = identityAt + 8

	request = 1
	answer  = 2
)

// appendPacket appends a packet of size bytes, which is at least packetLen.
func appendPacket(b []byte, kind byte, identity uint64, size int) []byte {
	b = append(append(b, magic...), kind)
	b = binary.BigEndian.AppendUint64(b, identity)
	return append(b, make([]byte, size-packetLen)...)
}

// parsePacket returns what kind of probe b holds, 0 if none.
func parsePacket(b []byte) (kind byte, identity uint64) {
	if len(b) < packetLen || string(b[:kindAt]) != magic || b[kindAt] != request && b[kindAt] != answer {
		return 0, 0
	}
	return b[kindAt], binary.BigEndian.Uint64(b[identityAt:])
}
