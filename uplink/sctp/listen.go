package sctp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"sluice/uplink"
)

const (
	handshakeTimeout = 10 * time.Second
	handshakesMost   = 256 // at once; more wait in the kernel's queue
	acceptRetry      = 100 * time.Millisecond
)

// Listener accepts carriers of peers that proved who they are.
type Listener struct {
	plain  *RawListener
	config *tls.Config
	log    *slog.Logger
	ready  chan uplink.Carrier
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// Listen listens on all the addresses, which have one port and are the paths
// that a gateway can dial; an unspecified one stands for all of the machine's.
// The configuration holds the collector's certificate and, in ClientCAs, the
// authorities that may sign gateways'; a peer without a certificate of theirs is
// turned away during the handshake.
func Listen(addresses []netip.AddrPort, config *tls.Config, tuning Tuning, log *slog.Logger) (*Listener, error) {
	if config.ClientCAs == nil {
		return nil, errors.New("listen for sctp: no authority for gateways' certificates is set")
	}
	plain, err := ListenRaw(addresses, tuning)
	if err != nil {
		return nil, err
	}
	config = harden(config)
	config.ClientAuth = tls.RequireAndVerifyClientCert
	l := &Listener{plain: plain, config: config, log: log, ready: make(chan uplink.Carrier)}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.wg.Go(l.accept)
	return l, nil
}

// Addr is where the listener listens.
func (l *Listener) Addr() net.Addr { return l.plain.Addr() }

// Accept returns the next carrier, or an error that wraps net.ErrClosed after
// Close.
func (l *Listener) Accept() (uplink.Carrier, error) {
	select {
	case c := <-l.ready:
		return c, nil
	case <-l.ctx.Done():
		return nil, fmt.Errorf("accept on %s: %w", l.Addr(), net.ErrClosed)
	}
}

// Close ends Accept and all handshakes. Accepted carriers stay.
func (l *Listener) Close() error {
	l.cancel()
	err := l.plain.Close()
	l.wg.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil // closed before
	}
	return err
}

// accept shakes hands with many peers at once, so that a slow one delays none.
func (l *Listener) accept() {
	slots := make(chan struct{}, handshakesMost)
	for {
		select {
		case slots <- struct{}{}:
		case <-l.ctx.Done():
			return
		}
		a, err := l.plain.accept()
		if err != nil {
			<-slots
			if errors.Is(err, net.ErrClosed) {
				return
			}
			// Out of descriptors, most likely: it passes.
			l.log.Error("accept association", "address", l.Addr().String(), "error", err)
			select {
			case <-time.After(acceptRetry):
			case <-l.ctx.Done():
				return
			}
			continue
		}
		l.wg.Go(func() {
			c, err := l.shake(a)
			<-slots
			if err != nil {
				a.Close()
				l.log.Warn("association not taken", "remote", a.remote.String(), "error", err)
				return
			}
			select {
			case l.ready <- c:
			case <-l.ctx.Done():
				c.Close()
			}
		})
	}
}

func (l *Listener) shake(a *Association) (*Conn, error) {
	ctx, cancel := context.WithTimeout(l.ctx, handshakeTimeout)
	defer cancel()
	secure := tls.Server(a, l.config)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("tls handshake: %w", err)
	}
	return newConn(secure, a)
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
