package secure

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"sluice/uplink"
)

const (
	handshakeTimeout = 10 * time.Second
	handshakesMost   = 256 // at once; more wait in the kernel's queue
	acceptRetry      = 100 * time.Millisecond
)

// Take makes a carrier of an accepted connection, with a TLS handshake by the
// configuration. Its caller closes the connection if it fails.
type Take func(ctx context.Context, plain net.Conn, config *tls.Config) (uplink.Carrier, error)

// Listener accepts carriers of peers that proved who they are.
type Listener struct {
	plain  net.Listener
	config *tls.Config
	take   Take
	log    *slog.Logger
	ready  chan uplink.Carrier
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// Listen accepts carriers from a listener, which it closes with itself. The
// configuration holds the collector's certificate and, in ClientCAs, the
// authorities that may sign gateways'; a peer without a certificate of theirs is
// turned away during the handshake.
func Listen(plain net.Listener, config *tls.Config, take Take, log *slog.Logger) (*Listener, error) {
	if config.ClientCAs == nil {
		plain.Close()
		return nil, fmt.Errorf("listen on %s: no authority for gateways' certificates is set", plain.Addr())
	}
	config = Config(config)
	config.ClientAuth = tls.RequireAndVerifyClientCert
	l := &Listener{plain: plain, config: config, take: take, log: log, ready: make(chan uplink.Carrier)}
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
		plain, err := l.plain.Accept()
		if err != nil {
			<-slots
			if errors.Is(err, net.ErrClosed) {
				return
			}
			// Out of descriptors, most likely: it passes.
			l.log.Error("accept connection", "network", l.Addr().Network(), "address", l.Addr().String(), "error", err)
			select {
			case <-time.After(acceptRetry):
			case <-l.ctx.Done():
				return
			}
			continue
		}
		l.wg.Go(func() {
			c, err := l.shake(plain)
			<-slots
			if err != nil {
				plain.Close()
				l.log.Warn("connection not taken", "network", l.Addr().Network(), "remote", plain.RemoteAddr().String(), "error", err)
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

func (l *Listener) shake(plain net.Conn) (uplink.Carrier, error) {
	ctx, cancel := context.WithTimeout(l.ctx, handshakeTimeout)
	defer cancel()
	return l.take(ctx, plain, l.config)
}
