package uplink

import (
	"context"
	"net"
	"net/netip"
	"time"
)

// Carrier is an ordered, authenticated byte stream between a gateway and a
// collector. As with every net.Conn, one Read and one Write may run at once,
// Close ends both with an error, and neither keeps the buffer it is given.
type Carrier interface {
	net.Conn
	// Peer is the name in the other end's certificate.
	Peer() string
	// Info measures the carrier now.
	Info() Info
	// LimitUnsent asks the carrier to let Write block while more than about so
	// many bytes are not on their way yet: an alarm cannot overtake those.
	LimitUnsent(bytes int)
}

// Info is what is known of a carrier. What a carrier cannot tell is zero, except
// where a note says otherwise.
type Info struct {
	Kind       string        // "tcp", "sctp"
	Congestion string        // the congestion control in use, "bbr"
	RTT        time.Duration // smoothed round trip, as the transport measures it; of the primary path
	BytesIn    uint64        // on the socket, so with encryption
	BytesOut   uint64

	// Sent and Resent count segments or chunks with data, ever: those sent for
	// the first time, and retransmissions. Their differences over a time give
	// the loss on the way.
	Sent, Resent uint64
	// Unacked is how many bytes the kernel was given and the peer's kernel has
	// not acknowledged; -1 if unknown.
	Unacked int
	Window  int        // bytes that the transport lets be on their way; of the primary path
	Packet  int        // bytes in a full packet
	Paths   []PathInfo // of a carrier that goes by several at once
}

// PathInfo is one path of a multi-homed carrier, which is one address of the
// peer (RFC 9260, section 1.3).
type PathInfo struct {
	Local, Remote netip.Addr
	Primary       bool
	State         string        // "active", "potentially failed", "inactive", "unconfirmed"
	RTT, RTO      time.Duration // smoothed round trip, retransmission timeout
	Window, MTU   int           // congestion window and path MTU, bytes
}

// Dialer opens a carrier to one collector address.
type Dialer struct {
	// Name tells people where it leads: "collector.example.org:7443".
	Name string
	// Kind is what Hello announces: "tcp".
	Kind string
	// Path is the path that it goes by, "wlan0"; empty if it goes by all of them,
	// or wherever the routes lead.
	Path string
	// Dial returns an authenticated carrier, or an error when ctx ends.
	Dial func(ctx context.Context) (Carrier, error)
}
