package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"sluice/uplink"
	"sluice/uplink/secure"
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
	// MTU is the largest packet that the path takes, with its IP header; 0 is as
	// the system finds out. It is for paths that drop what is larger and do not
	// say so (F19).
	MTU int
	// LocalAddr is where to dial from, nil for wherever the route leads.
	LocalAddr net.Addr
	// Resolve looks the name in Address up, nil for as the system does. Its
	// addresses are tried one after the other; an address in Address needs none.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	// Control, if set, is called with each socket before it is bound, to tie it
	// to an interface.
	Control func(ctx context.Context, network, address string, c syscall.RawConn) error
}

// Dial opens a carrier, and gives up when ctx ends.
func Dial(ctx context.Context, opt Options) (uplink.Carrier, error) {
	host, port, err := net.SplitHostPort(opt.Address)
	if err != nil {
		return nil, fmt.Errorf("collector address %q: %w: write it as host:port", opt.Address, err)
	}
	userTimeout := opt.UserTimeout
	if userTimeout == 0 {
		userTimeout = DefaultUserTimeout
	}
	plain, err := connect(ctx, opt, host, port)
	if err != nil {
		return nil, err // names the operation and the address
	}
	raw := &meter{TCPConn: plain.(*net.TCPConn)}
	congestion, err := prepare(raw.TCPConn, userTimeout)
	if err != nil {
		raw.Close()
		return nil, fmt.Errorf("prepare connection to %s: %w", opt.Address, err)
	}
	config := secure.Config(opt.TLS)
	if config.ServerName == "" {
		config.ServerName = host
	}
	encrypted := tls.Client(raw, config)
	if err := encrypted.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, fmt.Errorf("tls handshake with %s: %w", opt.Address, err)
	}
	c, err := newConn(encrypted, raw, congestion)
	if err != nil {
		raw.Close()
		return nil, err
	}
	return c, nil
}

// connect opens the TCP connection.
func connect(ctx context.Context, opt Options, host, port string) (net.Conn, error) {
	dialer := net.Dialer{LocalAddr: opt.LocalAddr, ControlContext: opt.control, KeepAlive: -1}
	if _, err := netip.ParseAddr(host); err == nil || opt.Resolve == nil {
		return dialer.DialContext(ctx, "tcp", opt.Address)
	}
	addrs, err := opt.Resolve(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", opt.Address, err)
	}
	if len(addrs) == 0 {
		return nil, fmt.Errorf("dial %s: the name has no address: see what its name servers say", opt.Address)
	}
	var errs []error
	for i, addr := range addrs {
		conn, err := connectTo(ctx, dialer, net.JoinHostPort(addr.String(), port), len(addrs)-i)
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(errs...)
}

// control prepares a socket before it is bound.
func (o *Options) control(ctx context.Context, network, address string, c syscall.RawConn) error {
	if o.MTU != 0 {
		headers := 40 // of IPv4 and TCP
		if network == "tcp6" {
			headers = 60
		}
		if err := limitSegments(c, o.MTU-headers); err != nil {
			return err
		}
	}
	if o.Control != nil {
		return o.Control(ctx, network, address, c)
	}
	return nil
}

// connectTo tries one address for its share of the time left, of which left
// addresses want as much.
func connectTo(ctx context.Context, dialer net.Dialer, address string, left int) (net.Conn, error) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/time.Duration(left))
		defer cancel()
	}
	return dialer.DialContext(ctx, "tcp", address)
}
