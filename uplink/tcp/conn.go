// Package tcp is the carrier that every network lets through: TCP with TLS 1.3,
// both ends authenticated by certificates.
package tcp

import (
	"crypto/tls"
	"net"
	"sync/atomic"
	"time"

	"sluice/uplink"
	"sluice/uplink/secure"
)

const (
	// A session pings long before these, which are a last resort.
	keepaliveIdle     = 10 * time.Minute
	keepaliveInterval = 15 * time.Second
	keepaliveCount    = 4
)

// Conn is a carrier over one TCP connection.
type Conn struct {
	*tls.Conn
	raw        *meter
	peer       string
	congestion string
}

var _ uplink.Carrier = (*Conn)(nil)

// newConn takes a connection whose handshake is done.
func newConn(c *tls.Conn, raw *meter, congestion string) (*Conn, error) {
	peer, err := secure.Peer(c)
	if err != nil {
		return nil, err
	}
	return &Conn{Conn: c, raw: raw, peer: peer, congestion: congestion}, nil
}

// Peer is the common name in the other end's certificate.
func (c *Conn) Peer() string { return c.peer }

// Info measures the connection.
func (c *Conn) Info() uplink.Info {
	info := uplink.Info{Kind: "tcp", Congestion: c.congestion, BytesIn: c.raw.in.Load(), BytesOut: c.raw.out.Load()}
	measure(c.raw.TCPConn, &info)
	return info
}

// LimitUnsent sets TCP_NOTSENT_LOWAT where the system has it.
func (c *Conn) LimitUnsent(bytes int) { limitUnsent(c.raw.TCPConn, bytes) }

// Close ends the connection without TLS's close notify, which would block while
// the peer takes nothing in; the session protocol says goodbye itself.
func (c *Conn) Close() error { return c.raw.Close() }

// meter counts the bytes on the socket.
type meter struct {
	*net.TCPConn
	in, out atomic.Uint64
}

func (m *meter) Read(p []byte) (int, error) {
	n, err := m.TCPConn.Read(p)
	m.in.Add(uint64(n))
	return n, err
}

func (m *meter) Write(p []byte) (int, error) {
	if err := awaitRoom(m.TCPConn); err != nil {
		return 0, err
	}
	n, err := m.TCPConn.Write(p)
	m.out.Add(uint64(n))
	return n, err
}

// prepare sets the options of a connection and returns the congestion control in
// use, empty if the system does not tell.
func prepare(c *net.TCPConn, userTimeout time.Duration) (congestion string, err error) {
	if err := c.SetNoDelay(true); err != nil {
		return "", err
	}
	err = c.SetKeepAliveConfig(net.KeepAliveConfig{
		Enable: true, Idle: keepaliveIdle, Interval: keepaliveInterval, Count: keepaliveCount,
	})
	if err != nil {
		return "", err
	}
	return tune(c, userTimeout)
}
