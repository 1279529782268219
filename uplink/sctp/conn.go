package sctp

import (
	"crypto/tls"
	"net/netip"
	"time"

	"sluice/uplink"
	"sluice/uplink/secure"
)

// Conn is a carrier over one association.
type Conn struct {
	*tls.Conn
	assoc *Association
	peer  string
}

var _ uplink.Carrier = (*Conn)(nil)

// newConn takes a connection whose handshake is done.
func newConn(c *tls.Conn, a *Association) (*Conn, error) {
	peer, err := secure.Peer(c)
	if err != nil {
		return nil, err
	}
	return &Conn{Conn: c, assoc: a, peer: peer}, nil
}

// Peer is the common name in the other end's certificate.
func (c *Conn) Peer() string { return c.peer }

// Info measures the association. Round trips are as coarse as the kernel keeps
// them: no less than seven of its ticks, 28 ms at 250 a second.
func (c *Conn) Info() uplink.Info { return c.assoc.Info() }

// LimitUnsent implements uplink.Carrier.
func (c *Conn) LimitUnsent(bytes int) { c.assoc.LimitUnsent(bytes) }

// SetPrimary is Association.SetPrimary.
func (c *Conn) SetPrimary(remote netip.Addr) error { return c.assoc.SetPrimary(remote) }

// SetHeartbeat is Association.SetHeartbeat.
func (c *Conn) SetHeartbeat(remote netip.Addr, every time.Duration) error {
	return c.assoc.SetHeartbeat(remote, every)
}

// Readdress is Association.Readdress.
func (c *Conn) Readdress(from, to netip.Addr) error { return c.assoc.Readdress(from, to) }

// Close ends the association without TLS's close notify, which would block while
// the peer takes nothing in; the session protocol says goodbye itself.
func (c *Conn) Close() error { return c.assoc.Close() }
