package paths

import (
	"net/netip"
	"os"
	"time"
)

// world is what all routers have an address of: who answers tells which path a
// packet took.
var (
	world4 = netip.MustParseAddr("198.18.0.1")
	world6 = netip.MustParseAddr("2001:db8::1")
)

const (
	typeA    = 1
	typeAAAA = 28
)

// dnsQuestion returns the type that a query asks for and where its question ends,
// 0 if it is none.
func dnsQuestion(query []byte) (kind, end int) {
	i := 12
	for i < len(query) && query[i] != 0 {
		i += 1 + int(query[i])
	}
	if i+5 > len(query) {
		return 0, 0
	}
	return int(query[i+1])<<8 | int(query[i+2]), i + 5
}

// dnsAnswer answers a query with the address if it is of the kind asked for, else
// with nothing of that kind (RFC 1035, 4.1).
func dnsAnswer(query []byte, a netip.Addr) []byte {
	kind, end := dnsQuestion(query)
	if end == 0 {
		return nil
	}
	fits := kind == typeA && a.Is4() || kind == typeAAAA && a.Is6()
	b := append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, query[12:end]...)
	if fits {
		b[7] = 1
		b = append(b, 0xc0, 12, 0, byte(kind), 0, 1, 0, 0, 0, 60, 0, byte(a.BitLen()/8))
		b = append(b, a.AsSlice()...)
	}
	return b
}

// dnsError answers a query with an error code: 2 is a failure, 3 no such name.
func dnsError(query []byte, code byte) []byte {
	_, end := dnsQuestion(query)
	if end == 0 {
		return nil
	}
	return append([]byte{query[0], query[1], 0x81, 0x80 | code, 0, 1, 0, 0, 0, 0, 0, 0}, query[12:end]...)
}

// patient is a time limit for where tests run: an emulated machine is slow.
func patient(limit time.Duration) time.Duration {
	if os.Getenv("SLUICE_GUEST") != "" {
		return 20 * limit
	}
	return limit
}
