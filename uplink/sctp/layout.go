package sctp

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"
)

// The kernel's structures, include/uapi/linux/sctp.h, put together by offset:
// some are packed so that a field of 32 bits lies at an odd place, and some are
// not and differ between kernels of 32 and 64 bits. All are in the machine's
// byte order except ports and addresses.
var native = binary.NativeEndian

const (
	familyInet  = 2
	familyInet6 = 10

	sockaddrSize   = 128 // struct sockaddr_storage
	primSize       = 132 // sctp_prim, sctp_setpeerprim
	paddrInfoSize  = 152 // sctp_paddrinfo
	paramsSize     = 156 // sctp_paddrparams
	statusSize     = 176 // sctp_status
	statsSize      = 256 // sctp_assoc_stats
	rtoInfoSize    = 16  // sctp_rtoinfo
	assocParmsSize = 20  // sctp_assocparams
	getAddrsSize   = 8   // sctp_getaddrs, without the addresses

	// sctp_paddrthlds_v2, on kernels of 64 and of 32 bits. A kernel of 64 bits
	// does not translate for a program of 32.
	thresholdsSize64 = 144
	thresholdsSize32 = 140
)

// putSockaddr writes an address as a struct sockaddr into b, of at least
// sockaddrSize bytes. The zero Addr becomes 0.0.0.0, which stands for all.
func putSockaddr(b []byte, a netip.AddrPort) {
	ip := a.Addr().Unmap()
	if !ip.IsValid() {
		ip = netip.IPv4Unspecified()
	}
	binary.BigEndian.PutUint16(b[2:], a.Port())
	if ip.Is4() {
		native.PutUint16(b, familyInet)
		copy(b[4:8], ip.AsSlice())
		return
	}
	native.PutUint16(b, familyInet6)
	copy(b[8:24], ip.AsSlice())
}

// sockaddr reads a struct sockaddr from the start of b and returns its length,
// of the family's own form without padding.
func sockaddr(b []byte) (a netip.AddrPort, size int, err error) {
	if len(b) < 16 {
		return a, 0, fmt.Errorf("socket address: %d bytes, want 16 or more", len(b))
	}
	port := binary.BigEndian.Uint16(b[2:])
	switch family := native.Uint16(b); family {
	case familyInet:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), port), 16, nil
	case familyInet6:
		if len(b) < 28 {
			return a, 0, fmt.Errorf("socket address of IPv6: %d bytes, want 28", len(b))
		}
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[8:24])).Unmap(), port), 28, nil
	default:
		return a, 0, fmt.Errorf("socket address of unknown family %d", family)
	}
}

// sockaddrs reads a struct sctp_getaddrs.
func sockaddrs(b []byte) ([]netip.AddrPort, error) {
	if len(b) < getAddrsSize {
		return nil, fmt.Errorf("list of addresses: %d bytes, want %d or more", len(b), getAddrsSize)
	}
	var all []netip.AddrPort
	count, rest := native.Uint32(b[4:]), b[getAddrsSize:]
	for range count {
		a, size, err := sockaddr(rest)
		if err != nil {
			return nil, fmt.Errorf("list of %d addresses: %w", count, err)
		}
		all, rest = append(all, a), rest[size:]
	}
	return all, nil
}

// initMsg is struct sctp_initmsg: streams out and in, attempts, and the longest
// wait between two.
func initMsg(streams, attempts uint16, longest time.Duration) []byte {
	b := make([]byte, 8)
	native.PutUint16(b, streams)
	native.PutUint16(b[2:], streams)
	native.PutUint16(b[4:], attempts)
	native.PutUint16(b[6:], uint16(longest.Milliseconds()))
	return b
}

// rtoInfo is struct sctp_rtoinfo; 0 leaves a value.
func rtoInfo(initial, least, most time.Duration) []byte {
	b := make([]byte, rtoInfoSize)
	native.PutUint32(b[4:], uint32(initial.Milliseconds()))
	native.PutUint32(b[8:], uint32(most.Milliseconds()))
	native.PutUint32(b[12:], uint32(least.Milliseconds()))
	return b
}

// assocParams is struct sctp_assocparams with how many timeouts in a row, over
// all paths, end the association; the rest stays.
func assocParams(timeouts uint16) []byte {
	b := make([]byte, assocParmsSize)
	native.PutUint16(b[4:], timeouts)
	return b
}

// sackInfo is struct sctp_sack_info.
func sackInfo(delay time.Duration, every uint32) []byte {
	b := make([]byte, 12)
	native.PutUint32(b[4:], uint32(delay.Milliseconds()))
	native.PutUint32(b[8:], every)
	return b
}

// assocValue is struct sctp_assoc_value.
func assocValue(v uint32) []byte {
	b := make([]byte, 8)
	native.PutUint32(b[4:], v)
	return b
}

// prim is struct sctp_prim, and struct sctp_setpeerprim, which looks the same.
func prim(a netip.AddrPort) []byte {
	b := make([]byte, primSize)
	putSockaddr(b[4:], a)
	return b
}

// pathParams is struct sctp_paddrparams. What is zero stays as it is.
type pathParams struct {
	path      netip.AddrPort // zero for all
	heartbeat time.Duration
	timeouts  uint16 // in a row that make the path inactive
	mtu       uint32
	flags     uint32
}

func (p pathParams) bytes() []byte {
	b := make([]byte, paramsSize)
	putSockaddr(b[4:], p.path)
	native.PutUint32(b[132:], uint32(p.heartbeat.Milliseconds()))
	native.PutUint16(b[136:], p.timeouts)
	native.PutUint32(b[138:], p.mtu)
	native.PutUint32(b[146:], p.flags)
	return b
}

// thresholds is struct sctp_paddrthlds_v2 for all paths, RFC 7829: how many
// timeouts in a row make a path inactive, how many it may have before it counts
// as potentially failed, and before the primary is moved from it for good.
func thresholds(size int, inactive, failed, moved uint16) []byte {
	b := make([]byte, size)
	address := 4
	if size == thresholdsSize64 {
		address = 8 // aligned like a pointer
	}
	putSockaddr(b[address:], netip.AddrPort{})
	native.PutUint16(b[address+sockaddrSize:], inactive)
	native.PutUint16(b[address+sockaddrSize+2:], failed)
	native.PutUint16(b[address+sockaddrSize+4:], moved)
	return b
}

// pathInfo is struct sctp_paddrinfo.
type pathInfo struct {
	path   netip.AddrPort
	state  pathState
	window uint32 // bytes
	srtt   uint32 // jiffies
	rto    time.Duration
	mtu    uint32
}

func parsePathInfo(b []byte) (p pathInfo, err error) {
	if len(b) < paddrInfoSize {
		return p, fmt.Errorf("path information: %d bytes, want %d", len(b), paddrInfoSize)
	}
	if p.path, _, err = sockaddr(b[4:]); err != nil {
		return p, err
	}
	p.state = pathState(native.Uint32(b[132:]))
	p.window = native.Uint32(b[136:])
	p.srtt = native.Uint32(b[140:])
	p.rto = time.Duration(native.Uint32(b[144:])) * time.Millisecond
	p.mtu = native.Uint32(b[148:])
	return p, nil
}

// pathState is enum sctp_spinfo_state, which is not what RFC 6458 orders.
type pathState uint32

const (
	pathInactive    pathState = 0
	pathFailing     pathState = 1
	pathActive      pathState = 2
	pathUnconfirmed pathState = 3
)

// String is the state in the words of uplink.PathInfo.
func (s pathState) String() string {
	switch s {
	case pathInactive:
		return "inactive"
	case pathFailing:
		return "potentially failed"
	case pathUnconfirmed:
		return "unconfirmed"
	default: // the kernel's "unknown", of a path not heard from yet, it uses as active
		return "active"
	}
}

// assocState is the association's, as Linux counts it.
type assocState uint32

const assocEstablished assocState = 4

// status is struct sctp_status.
type status struct {
	state       assocState
	outstanding int // chunks sent and not acknowledged
	fragment    int // bytes of a message that fit in a packet
	primary     pathInfo
}

func parseStatus(b []byte) (s status, err error) {
	if len(b) < statusSize {
		return s, fmt.Errorf("association status: %d bytes, want %d", len(b), statusSize)
	}
	s.state = assocState(native.Uint32(b[4:]))
	s.outstanding = int(native.Uint16(b[12:]))
	s.fragment = int(native.Uint32(b[20:]))
	s.primary, err = parsePathInfo(b[24:])
	return s, err
}

// counters is what is used of struct sctp_assoc_stats. The counters lie at the
// same offsets for 64 bits and for ARM's 32, though the address before does not.
type counters struct {
	sent, resent uint64 // DATA chunks
}

func parseCounters(b []byte) (c counters, err error) {
	if len(b) < statsSize {
		return c, fmt.Errorf("association counters: %d bytes, want %d", len(b), statsSize)
	}
	c.resent = native.Uint64(b[176:])
	c.sent = native.Uint64(b[208:]) + native.Uint64(b[224:])
	return c, nil
}
