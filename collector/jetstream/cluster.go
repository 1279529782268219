package jetstream

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// Cluster is one or more NATS servers that run elsewhere, with JetStream. For
// "durable" to hold through a power cut there, they need sync_interval: always
// or three replicas in places that do not fail together.
type Cluster struct {
	URLs []string // nats://, tls:// or ws://, one reachable is enough

	// One of the two, or neither if the servers ask for nothing.
	Credentials    string // path of a .creds file
	User, Password string

	TLS *tls.Config // nil: as the URLs say, with the system's authorities
}

func (c *Cluster) connect(ctx context.Context, opts ...nats.Option) (*nats.Conn, error) {
	opts = append(opts,
		nats.Timeout(connectTimeout),
		// A lost connection is sought for ever, with pauses of up to a second:
		// meanwhile gateways keep what they have.
		nats.MaxReconnects(-1),
		nats.ReconnectWait(time.Second),
		// A publish while disconnected fails at once instead of being buffered:
		// a buffered one would be sent at some unknown later time.
		nats.ReconnectBufSize(-1),
	)
	if c.Credentials != "" {
		opts = append(opts, nats.UserCredentials(c.Credentials))
	}
	if c.User != "" {
		opts = append(opts, nats.UserInfo(c.User, c.Password))
	}
	if c.TLS != nil {
		opts = append(opts, nats.Secure(c.TLS))
	}
	type result struct {
		conn *nats.Conn
		err  error
	}
	done := make(chan result, 1)
	go func() {
		conn, err := nats.Connect(strings.Join(c.URLs, ","), opts...)
		done <- result{conn, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return nil, fmt.Errorf("connect to nats at %s: %w", redacted(c.URLs), r.err)
		}
		return r.conn, nil
	case <-ctx.Done():
		// nats.Connect takes no context; it ends by itself and is closed then.
		go func() {
			if r := <-done; r.conn != nil {
				r.conn.Close()
			}
		}()
		return nil, fmt.Errorf("connect to nats at %s: %w", redacted(c.URLs), ctx.Err())
	}
}

// redacted shows URLs without the passwords in them.
func redacted(urls []string) string {
	shown := make([]string, len(urls))
	for i, u := range urls {
		scheme, rest, ok := strings.Cut(u, "://")
		if !ok {
			scheme, rest = "nats", u
		}
		shown[i] = scheme + "://" + rest[strings.LastIndexByte(rest, '@')+1:]
	}
	return strings.Join(shown, ", ")
}
