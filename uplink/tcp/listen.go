package tcp

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"

	"sluice/uplink"
	"sluice/uplink/secure"
)

// Listen listens on address for peers with a certificate of the authorities in
// the configuration; see secure.Listen.
func Listen(address string, config *tls.Config, log *slog.Logger) (*secure.Listener, error) {
	plain, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err // names the operation and the address
	}
	return secure.Listen(plain, config, take, log)
}

func take(ctx context.Context, plain net.Conn, config *tls.Config) (uplink.Carrier, error) {
	raw := &meter{TCPConn: plain.(*net.TCPConn)}
	congestion, err := prepare(raw.TCPConn, DefaultUserTimeout)
	if err != nil {
		return nil, fmt.Errorf("prepare connection: %w", err)
	}
	c := tls.Server(raw, config)
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("tls handshake: %w", err)
	}
	return newConn(c, raw, congestion)
}
