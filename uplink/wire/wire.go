// Package wire is the session protocol's messages and their bytes, which
// docs/protocol.md describes.
//
// A message is a uvarint (the length of what follows), one byte (the type) and
// the body. Numbers are uvarints unless said otherwise, texts a length and
// UTF-8. A reader skips what follows the fields it knows, so that a message can
// grow, and skips a message of a type it does not know if the type's bit
// MayIgnore is set.
package wire

import (
	"errors"

	"sluice/reading"
)

// Version is the protocol version this package speaks.
const Version = 1

// Type says what a message is.
type Type byte

// MayIgnore is set in types that a peer which does not know them skips.
const MayIgnore Type = 0x80

// The message types.
const (
	TypeHello   Type = 1 // gateway: the first message on a carrier
	TypeWelcome Type = 2 // collector: the carrier has joined the session
	TypeReject  Type = 3 // collector: it has not, and the carrier ends
	TypeData    Type = 4 // gateway: readings
	TypeAck     Type = 5 // collector: what is durable
	TypePing    Type = 6 // either: answer with Pong
	TypePong    Type = 7 // either
	TypeDrain   Type = 8 // collector: send nothing more here, the rest will be acknowledged
	TypeClose   Type = 9 // either: the last message on a carrier

	TypeTunnelRequest Type = 10 // gateway: instead of a Hello, asks for a tunnel's addresses
	TypeTunnelReply   Type = 11 // collector: they are these, and the carrier ends
)

const (
	// MaxHandshake bounds a Hello, a TunnelRequest and their answers, in bytes.
	MaxHandshake = 4 << 10
	// MaxControl bounds every message that is not Data, in bytes.
	MaxControl = 64 << 10
	// MaxName bounds a gateway's name, a carrier's name and a reason, in bytes.
	MaxName = 255
	// MaxRanges bounds the ranges of one lane in an Ack.
	MaxRanges = 64
)

var (
	// ErrMalformed is returned when a message cannot be read.
	ErrMalformed = errors.New("malformed message")
	// ErrTooLong is returned when a message is longer than its reader allows.
	ErrTooLong = errors.New("message longer than the limit")
	// ErrUnknown is returned for a message of an unknown type that must not be
	// skipped: the peer speaks a newer version and should have said so.
	ErrUnknown = errors.New("unknown message type")
	// ErrMagic is returned when the first message is not a Hello of this protocol.
	ErrMagic = errors.New("peer does not speak the session protocol")
)

// SessionID is chosen at random by a gateway's process and names its session.
type SessionID [16]byte

// Hello asks for a carrier to join a session.
type Hello struct {
	Version      uint64 // the newest version the gateway speaks
	Gateway      string // as in its certificate
	Session      SessionID
	Epoch        uint64 // of the store: its sequence numbers mean nothing in another
	Carrier      string // "tcp"
	Capabilities uint64 // bits; none are defined in version 1
	Keepalive    uint64 // milliseconds of silence after which the gateway sends a Ping
}

// Welcome answers Hello.
type Welcome struct {
	Version      uint64 // the version both will speak, at most the gateway's
	Capabilities uint64 // those of the gateway's that the collector has as well
	MaxFrame     uint64 // bytes of one Data message, length and type left out
	MaxUnacked   uint64 // bytes of all Data messages of a session not yet acknowledged
	Wall         int64  // the collector's clock, nanoseconds since 1970-01-01 UTC
	Lanes        [reading.Lanes]Resume
	Instance     uint64 // random, of the collector's process: a session's carriers must all lead to one
}

// Resume is where a lane goes on.
type Resume struct {
	Durable  uint64 // last sequence number that every output holds
	Received uint64 // last one up to which this session has nothing missing; at least Durable
}

// Code says why a carrier was rejected or closed.
type Code uint64

// The codes.
const (
	CodeDone        Code = 0 // orderly end
	CodeVersion     Code = 1 // no version in common
	CodeIdentity    Code = 2 // the name is not the certificate's
	CodeBusy        Code = 3 // too many sessions
	CodeUnavailable Code = 4 // an output does not answer
	CodeSuperseded  Code = 5 // a newer session of the same gateway took over
	CodeProtocol    Code = 6 // the peer broke a rule
	CodeIdle        Code = 7 // nothing heard for too long
	CodeTunnel      Code = 8 // there is no tunnel for the gateway here
)

// Reject refuses a carrier.
type Reject struct {
	Code       Code
	Reason     string
	RetryAfter uint64 // milliseconds the gateway should wait; 0 leaves it to the gateway
}

// Data carries readings of one lane: all there are after the sequence number
// Prev, up to and with Through. What no segment holds in between was removed at
// the gateway and will not come.
type Data struct {
	Lane     reading.Lane
	Prev     uint64
	Through  uint64 // at least the last segment's Last
	Segments []reading.Segment
}

// Range is a run of sequence numbers, both ends included.
type Range struct{ First, Last uint64 }

// LaneAck is what the collector has of one lane.
type LaneAck struct {
	Lane     reading.Lane
	Durable  uint64  // everything up to here is at the outputs
	Received []Range // above Durable, ascending, apart: in memory, not durable yet
}

// Ack says what is durable. Lanes that it does not name are unchanged.
type Ack struct{ Lanes []LaneAck }

// Close ends a carrier.
type Close struct {
	Code   Code
	Reason string
}
