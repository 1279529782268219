// Package sctp is the carrier over several links at once: one association of the
// kernel's SCTP (RFC 9260) that is multi-homed over all paths, with TLS 1.3 on
// its only stream (RFC 3436), both ends authenticated by certificates.
//
// A path is an address of the peer. Data goes by the primary path; when that one
// does not acknowledge in time, the kernel goes on by another by itself. Which
// one should be primary is for others to say, with SetPrimary.
//
// To read it: tuning.go says what is set and why, socket_linux.go how the socket
// lives under the runtime's poller, association.go what is written and measured,
// conn.go, dial.go and listen.go put TLS on it. docs/sctp.md has the
// measurements.
package sctp

import (
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// ErrUnsupported is returned when the system has no SCTP.
var ErrUnsupported = errors.New("sctp not available")

// Supported is nil if the kernel has SCTP. Asking makes the kernel look for its
// module, once more at each call; an error says what is missing.
func Supported() error {
	s, err := openSocket(false)
	if err != nil {
		return err
	}
	return s.close()
}

// Addr is one end of an association, which has as many addresses as paths.
type Addr struct {
	IPs  []netip.Addr
	Port uint16
}

// Network implements net.Addr.
func (Addr) Network() string { return "sctp" }

// String is "10.0.0.1+10.0.1.1:7443".
func (a Addr) String() string {
	names := make([]string, len(a.IPs))
	for i, ip := range a.IPs {
		names[i] = ip.String()
		if ip.Is6() {
			names[i] = "[" + names[i] + "]"
		}
	}
	return strings.Join(names, "+") + ":" + strconv.Itoa(int(a.Port))
}

// endpoint takes the addresses of one end, whose port must be the same.
func endpoint(addresses []netip.AddrPort) (Addr, error) {
	if len(addresses) == 0 {
		return Addr{}, errors.New("no address is given")
	}
	a := Addr{Port: addresses[0].Port()}
	for _, x := range addresses {
		switch ip := x.Addr().Unmap(); {
		case !ip.IsValid():
			return Addr{}, errors.New("one of the addresses is empty")
		case x.Port() != a.Port:
			return Addr{}, errors.New("the addresses have different ports: give all paths the same one")
		case slices.Contains(a.IPs, ip):
			return Addr{}, errors.New("address " + ip.String() + " is given twice: each path needs its own")
		default:
			a.IPs = append(a.IPs, ip)
		}
	}
	return a, nil
}

func (a Addr) has6() bool {
	return slices.ContainsFunc(a.IPs, netip.Addr.Is6)
}
