package sctp

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/netip"

	"sluice/uplink"
	"sluice/uplink/secure"
)

// Listen listens on all the addresses, which have one port and are the paths
// that a gateway can dial; an unspecified one stands for all of the machine's.
// It is for peers with a certificate of the authorities in the configuration; see
// secure.Listen.
func Listen(addresses []netip.AddrPort, config *tls.Config, tuning Tuning, log *slog.Logger) (*secure.Listener, error) {
	plain, err := ListenRaw(addresses, tuning)
	if err != nil {
		return nil, err
	}
	return secure.Listen(plain, config, take, log)
}

func take(ctx context.Context, plain net.Conn, config *tls.Config) (uplink.Carrier, error) {
	a := plain.(*Association)
	c := tls.Server(a, config)
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("tls handshake: %w", err)
	}
	return newConn(c, a)
}

// RawListener accepts associations without TLS, for measuring what the kernel
// does.
type RawListener struct {
	sock   *socket
	tuning Tuning
	addr   Addr
}

var _ net.Listener = (*RawListener)(nil)

// ListenRaw listens on all the addresses, as Listen does.
func ListenRaw(addresses []netip.AddrPort, tuning Tuning) (*RawListener, error) {
	at, err := endpoint(addresses)
	if err != nil {
		return nil, fmt.Errorf("listen for sctp: %w", err)
	}
	s, err := openSocket(at.has6())
	if err != nil {
		return nil, err
	}
	l := &RawListener{sock: s, tuning: tuning}
	if err := l.listen(at); err != nil {
		s.close()
		return nil, &net.OpError{Op: "listen", Net: "sctp", Addr: at, Err: err}
	}
	return l, nil
}

func (l *RawListener) listen(at Addr) error {
	if err := l.sock.reuse(); err != nil {
		return err
	}
	if err := l.tuning.apply(l.sock); err != nil {
		return err
	}
	if err := l.sock.bind(at.IPs, at.Port, true); err != nil {
		return err
	}
	if err := l.sock.listen(); err != nil {
		return err
	}
	bound, err := l.sock.addresses(optLocalAddrs)
	if err != nil {
		return err
	}
	l.addr = at
	if len(bound) > 0 {
		l.addr.Port = bound[0].Port()
	}
	return nil
}

// Accept implements net.Listener.
func (l *RawListener) Accept() (net.Conn, error) {
	a, err := l.accept()
	if err != nil {
		return nil, err
	}
	return a, nil
}

func (l *RawListener) accept() (*Association, error) {
	s, err := l.sock.accept()
	if err != nil {
		return nil, &net.OpError{Op: "accept", Net: "sctp", Addr: l.addr, Err: err}
	}
	return newAssociation(s, l.tuning, nil, Addr{}), nil
}

// Close implements net.Listener. Accepted associations stay.
func (l *RawListener) Close() error { return l.sock.close() }

// Addr implements net.Listener.
func (l *RawListener) Addr() net.Addr { return l.addr }
