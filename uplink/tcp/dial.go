package tcp

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"syscall"
	"time"

	"sluice/uplink"
)

// DefaultUserTimeout is how long sent bytes may stay unacknowledged before the
// connection is given up.
const DefaultUserTimeout = 10 * time.Second

// Options configures a dialled carrier.
type Options struct {
	Address string // "collector.example.org:7443"; the name is looked up at every attempt, and each of its addresses tried
	// TLS holds the gateway's certificate and the authorities that may sign the
	// collector's. A ClientSessionCache in it makes reconnecting cost fewer bytes.
	TLS *tls.Config
	// UserTimeout gives the connection up when bytes stay unacknowledged for so
	// long; 0 is DefaultUserTimeout.
	UserTimeout time.Duration
	// LocalAddr is where to dial from, nil for wherever the route leads.
	LocalAddr net.Addr
	// Control, if set, is called with each socket before it is bound, to tie it
	// to an interface.
	Control func(ctx context.Context, network, address string, c syscall.RawConn) error
}

// Dial opens a carrier, and gives up when ctx ends.
func Dial(ctx context.Context, opt Options) (uplink.Carrier, error) {
	host, _, err := net.SplitHostPort(opt.Address)
	if err != nil {
		return nil, fmt.Errorf("collector address %q: %w: write it as host:port", opt.Address, err)
	}
	userTimeout := opt.UserTimeout
	if userTimeout == 0 {
		userTimeout = DefaultUserTimeout
	}
	dialer := net.Dialer{LocalAddr: opt.LocalAddr, ControlContext: opt.Control, KeepAlive: -1}
	plain, err := dialer.DialContext(ctx, "tcp", opt.Address)
	if err != nil {
		return nil, err // names the operation and the address
	}
	raw := &meter{TCPConn: plain.(*net.TCPConn)}
	congestion, err := prepare(raw.TCPConn, userTimeout)
	if err != nil {
		raw.Close()
		return nil, fmt.Errorf("prepare connection to %s: %w", opt.Address, err)
	}
	config := harden(opt.TLS)
	if config.ServerName == "" {
		config.ServerName = host
	}
	secure := tls.Client(raw, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, fmt.Errorf("tls handshake with %s: %w", opt.Address, err)
	}
	c, err := newConn(secure, raw, congestion)
	if err != nil {
		raw.Close()
		return nil, err
	}
	return c, nil
}
