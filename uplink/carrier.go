// Package uplink sends what the queue holds to a collector, over whatever
// carriers have joined its session, and removes from the queue what the
// collector has made durable.
//
// One goroutine, run in session.go, owns the lanes and decides what goes next;
// each carrier has one goroutine that writes and one that reads, in link.go. The
// flow of a reading: Queue.Next, held in its lane (lane.go), chosen
// (schedule.go), packed into a frame (frame.go), written, a span in flight,
// acknowledged, Queue.Ack.
package uplink

import (
	"context"
	"net"
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

// Info is what is known of a carrier. What a carrier cannot tell is zero.
type Info struct {
	Kind        string        // "tcp"
	Congestion  string        // the congestion control in use, "bbr"
	RTT         time.Duration // smoothed round trip, as the transport measures it
	Retransmits uint64        // segments sent again
	BytesIn     uint64        // on the socket, so with encryption
	BytesOut    uint64
}

// Dialer opens a carrier to one collector address.
type Dialer struct {
	// Name tells people where it leads: "collector.example.org:7443".
	Name string
	// Kind is what Hello announces: "tcp".
	Kind string
	// Dial returns an authenticated carrier, or an error when ctx ends.
	Dial func(ctx context.Context) (Carrier, error)
}
