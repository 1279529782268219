// Package tunnel gives each uplink of a gateway a WireGuard tunnel to the
// collector, so that each uplink is a peer address of its own (which is what
// Linux calls a path of an SCTP association), also from behind NATs and while
// addresses change.
//
// Both ends are here: Client at the gateway, in client.go, and Server at the
// collector, in server.go. The addresses are a lease that the gateway asks for
// over an ordinary carrier (Ask) and both ends keep. Devices are made by a
// backend: the kernel's WireGuard, or where it has none, WireGuard in this
// process over a TUN device. docs/tunnel.md tells operators what there is to see.
package tunnel

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"sluice/uplink/wire"
)

const (
	// DefaultPort is the collector's UDP port.
	DefaultPort = 51820

	// keepalive is how often an idle tunnel says so, to outlast the mappings of
	// NATs, which may go after 30 s. With the keys that are renewed meanwhile, it
	// takes a third of a megabyte a day.
	keepalive = 25 * time.Second

	// MaxMTU is the largest of a tunnel, in bytes of an inner packet.
	MaxMTU = 1420
	// minMTU is what every IPv4 host takes (RFC 791).
	minMTU = 576
	// Overhead is what WireGuard and the headers of UDP and IPv6 add to a packet.
	Overhead = 80
	// collectorMTU is what the collector's packets fit in, also on a path of 1280
	// bytes that swallows "fragmentation needed" (F19). It sends little but
	// acknowledgements, and a few more headers cost less than a handshake that
	// hangs.
	collectorMTU = 1280 - Overhead
)

var (
	// ErrUnsupported is returned by New and Listen on systems without tunnels.
	ErrUnsupported = errors.New("tunnels need Linux")
	// ErrFull is returned by Lease when all the network's addresses are taken.
	ErrFull = errors.New("network is full")
	// ErrClosed is returned by the methods of a closed Client or Server.
	ErrClosed = errors.New("tunnels are closed")

	errTaken = errors.New("a device of that name exists and is not ours")
	errGone  = errors.New("device is gone")
)

// Uplink is an interface of the gateway that gets a tunnel.
type Uplink struct {
	Name string // of the interface: "wwan0"
	Mark uint32 // on the tunnel's outer packets, for the rules of uplink/paths
	MTU  int    // of the interface, bytes; 0 if unknown
	// Endpoint is the collector's address by this uplink, if it is another than by
	// the others: an uplink may be of another family, or in a network of its own.
	Endpoint netip.Addr
}

// Tunnel is a device that is up.
type Tunnel struct {
	Path   string     // the uplink's name
	Device string     // "sluice0"
	Local  netip.Addr // inner addresses
	Remote netip.Addr
	MTU    int // bytes of an inner packet
}

// State is what is known of a Tunnel now.
type State struct {
	Tunnel
	Handshake time.Time // the last one, zero if there was none; renewed about every two minutes while the path works
	Sent      uint64    // bytes of WireGuard messages, ever
	Received  uint64
}

// checkName admits what Linux admits as an interface's name. It is a file's name
// as well.
func checkName(name string) error {
	bad := name == "" || len(name) > wire.MaxInterface || name == "." || name == ".." ||
		strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || r == '/' || r == ':' })
	if bad {
		return fmt.Errorf("uplink %q: use the name of an interface, of at most %d bytes", name, wire.MaxInterface)
	}
	return nil
}
