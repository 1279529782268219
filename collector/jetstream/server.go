package jetstream

import (
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// Server is a NATS server within this process. It syncs every message before
// acknowledging it.
type Server struct {
	Dir    string // where it keeps its files
	Listen string // host:port for ordinary clients; empty: none can connect

	// User and Password are what a client must present. Without a user,
	// whoever reaches Listen may read. Clients can read, and keep consumers and
	// streams of their own; only the collector writes to the stream.
	User, Password string
	TLS            *tls.Config // for clients; nil: plain text
}

const (
	// startTimeout is how long the server may take to come up. It reads an
	// index of what it stores; after a power cut it may have to rebuild it.
	startTimeout = 2 * time.Minute

	// startCheck is how often we look whether it has given up.
	startCheck = 100 * time.Millisecond

	// serverMemory bounds streams that clients create in memory; ours is on
	// disk.
	serverMemory = 64 << 20

	writer = "sluice-collector" // the only user who may publish readings
	reader = "sluice-reader"    // who a client is when no user is configured
)

// embedded is a running server.
type embedded struct {
	server   *server.Server
	password string // of writer, new at each start
}

func startServer(cfg Server, stream string, log *slog.Logger) (*embedded, error) {
	e := &embedded{password: rand.Text()}
	opts := &server.Options{
		ServerName:             writer,
		DontListen:             cfg.Listen == "",
		JetStream:              true,
		StoreDir:               cfg.Dir,
		SyncAlways:             true,
		JetStreamMaxMemory:     serverMemory,
		NoSigs:                 true,
		DisableJetStreamBanner: true,
		Users: []*server.User{
			{Username: writer, Password: e.password},
			readerUser(cfg, stream),
		},
	}
	if cfg.User == "" {
		opts.NoAuthUser = reader
	}
	if cfg.Listen != "" {
		host, port, err := net.SplitHostPort(cfg.Listen)
		if err != nil {
			return nil, fmt.Errorf("listen address %q: %w", cfg.Listen, err)
		}
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("listen address %q: port: %w", cfg.Listen, err)
		}
		opts.Host, opts.Port = host, int(n)
		if n == 0 {
			opts.Port = server.RANDOM_PORT
		}
	}
	if cfg.TLS != nil {
		opts.TLS, opts.TLSConfig, opts.TLSTimeout = true, cfg.TLS, 5
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("nats server: %w", err)
	}
	said := &logger{log: log, fatal: make(chan struct{})}
	s.SetLoggerV2(said, false, false, false)
	e.server = s
	s.Start()
	if err := said.awaitStart(s); err != nil {
		e.stop()
		return nil, fmt.Errorf("nats server in %s: %w", cfg.Dir, err)
	}
	return e, nil
}

// readerUser may do everything but write the stream or take from it: the
// stream is the collector's memory of what was delivered.
func readerUser(cfg Server, stream string) *server.User {
	u := &server.User{
		Username: reader,
		Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{
			prefix + ".>",
			"$JS.API.STREAM.CREATE." + stream,
			"$JS.API.STREAM.UPDATE." + stream,
			"$JS.API.STREAM.DELETE." + stream,
			"$JS.API.STREAM.PURGE." + stream,
			"$JS.API.STREAM.RESTORE." + stream,
			"$JS.API.STREAM.MSG.DELETE." + stream,
			"$JS.API.ACCOUNT.PURGE.>",
		}}},
	}
	if cfg.User != "" {
		u.Username, u.Password = cfg.User, cfg.Password
	}
	return u
}

func (e *embedded) connect(opts ...nats.Option) (*nats.Conn, error) {
	conn, err := nats.Connect("", append(opts,
		nats.InProcessServer(e.server), nats.UserInfo(writer, e.password), nats.MaxReconnects(-1))...)
	if err != nil {
		return nil, fmt.Errorf("connect to the nats server within: %w", err)
	}
	return conn, nil
}

func (e *embedded) address() string {
	a, ok := e.server.Addr().(*net.TCPAddr)
	if !ok {
		return ""
	}
	return a.String()
}

// stop ends the server and waits until its files are closed.
func (e *embedded) stop() {
	e.server.Shutdown()
	e.server.WaitForShutdown()
}
