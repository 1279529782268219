package sctp

import (
	"fmt"
	"net/netip"
)

// Options of SOL_SCTP, which golang.org/x/sys/unix does not list.
const (
	optRTOInfo        = 0
	optAssocInfo      = 1
	optInitMsg        = 2
	optNoDelay        = 3
	optSetPeerPrimary = 5
	optPrimary        = 6
	optPathParams     = 9
	optEvents         = 11
	optStatus         = 14
	optPathInfo       = 15
	optDelayedSack    = 16
	optMaxBurst       = 20
	optThresholds     = 37 // PEER_ADDR_THLDS_V2
	optPeerAddrs      = 108
	optLocalAddrs     = 109
	optCounters       = 112
	optAsconf         = 128
	optAuth           = 129
	optExposeFailing  = 131
)

// Flags of sctp_paddrparams.
const (
	heartbeatOn     = 0x01
	heartbeatOff    = 0x02
	heartbeatDemand = 0x04
	mtuFixed        = 0x10 // SPP_PMTUD_DISABLE
)

// status asks for the association's state, and its primary path's.
func (s *socket) status() (status, error) {
	b := make([]byte, statusSize)
	n, err := s.get(optStatus, b)
	if err != nil {
		return status{}, fmt.Errorf("ask for association status: %w", err)
	}
	return parseStatus(b[:n])
}

// pathInfo asks for the state of one path.
func (s *socket) pathInfo(path netip.AddrPort) (pathInfo, error) {
	b := make([]byte, paddrInfoSize)
	putSockaddr(b[4:], path)
	n, err := s.get(optPathInfo, b)
	if err != nil {
		return pathInfo{}, fmt.Errorf("ask for state of path %s: %w", path.Addr(), err)
	}
	return parsePathInfo(b[:n])
}

// counters asks how many chunks with data were sent.
func (s *socket) counters() (counters, error) {
	b := make([]byte, statsSize)
	n, err := s.get(optCounters, b)
	if err != nil {
		return counters{}, fmt.Errorf("ask for association counters: %w", err)
	}
	return parseCounters(b[:n])
}

// addresses asks for the peer's addresses or the socket's own.
func (s *socket) addresses(option int) ([]netip.AddrPort, error) {
	b := make([]byte, getAddrsSize+64*28)
	n, err := s.get(option, b)
	if err != nil {
		return nil, fmt.Errorf("ask for addresses: %w", err)
	}
	// The kernel counts in n what it wrote behind the head in some versions, and
	// all of it in others.
	return sockaddrs(b[:min(n+getAddrsSize, len(b))])
}
