package jetstream

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"golang.org/x/sys/unix"

	"sluice/collector/lock"
)

// Server is a NATS server within this process. It syncs every message before
// acknowledging it.
type Server struct {
	Dir    string // where it keeps its files
	Listen string // host:port for ordinary clients; empty: none can connect

	// User and Password are what a client must present. Without a user,
	// whoever reaches Listen may read. Clients can read and keep consumers;
	// only the collector writes.
	User, Password string
	TLS            *tls.Config // for clients; nil: plain text
}

const (
	// startTimeout is how long the server may take to come up. It reads an
	// index of what it stores; after a power cut it may have to rebuild it.
	startTimeout = 2 * time.Minute

	// startCheck is how often we look whether it has given up.
	startCheck = 100 * time.Millisecond

	// serverMemory is for streams in memory, of which there is none.
	serverMemory = 1 << 20

	// serverStore is no limit. Without it the server takes three quarters of
	// what is free when it starts, and does not see room that is made later.
	serverStore = 1 << 62

	// keepFree is how many bytes of the disk are left free. On a full disk the
	// server could not even delete old messages.
	keepFree = 64 << 20

	writer = "sluice-collector" // the only user who may publish readings
	reader = "sluice-reader"    // who a client is when no user is configured
)

// embedded is a running server.
type embedded struct {
	options  *server.Options
	stream   string
	log      *slog.Logger
	password string // of writer, new each time
	keepFree uint64
	lock     *os.File // the server itself would let a second one at its files

	server  atomic.Pointer[server.Server]
	sick    atomic.Bool   // it takes no messages until it is started anew
	healing chan struct{} // holds one token while somebody does that
	closing sync.Once
}

func startServer(cfg Server, stream string, log *slog.Logger) (*embedded, error) {
	e := &embedded{stream: stream, log: log, password: rand.Text(), keepFree: keepFree, healing: make(chan struct{}, 1)}
	opts := &server.Options{
		ServerName:             writer,
		DontListen:             cfg.Listen == "",
		JetStream:              true,
		StoreDir:               cfg.Dir,
		SyncAlways:             true,
		JetStreamMaxMemory:     serverMemory,
		JetStreamMaxStore:      serverStore,
		NoSigs:                 true,
		DisableJetStreamBanner: true,
		Users: []*server.User{
			{Username: writer, Password: e.password},
			readerUser(cfg),
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
	e.options = opts
	if err := os.MkdirAll(cfg.Dir, 0o750); err != nil {
		return nil, fmt.Errorf("nats server: %w", err)
	}
	var err error
	if e.lock, err = lock.Dir(cfg.Dir); err != nil {
		return nil, fmt.Errorf("nats server: %w", err)
	}
	if err := e.start(); err != nil {
		e.lock.Close()
		return nil, err
	}
	return e, nil
}

func (e *embedded) start() error {
	s, err := server.NewServer(e.options)
	if err != nil {
		return fmt.Errorf("nats server: %w", err)
	}
	said := &logger{log: e.log, fatal: make(chan struct{})}
	s.SetLoggerV2(said, false, false, false)
	s.Start()
	if err := said.awaitStart(s); err != nil {
		s.Shutdown()
		s.WaitForShutdown()
		return fmt.Errorf("nats server in %s: %w", e.options.StoreDir, err)
	}
	e.server.Store(s)
	return nil
}

// readerUser may read and keep consumers. The stream is the collector's memory
// of what was delivered, so nobody else may write it or take from it; nor may a
// client answer in the server's stead, or fill the disk with streams of its own.
func readerUser(cfg Server) *server.User {
	u := &server.User{
		Username: reader,
		Permissions: &server.Permissions{Publish: &server.SubjectPermission{Allow: []string{
			"$JS.API.INFO",
			"$JS.API.STREAM.NAMES",
			"$JS.API.STREAM.LIST",
			"$JS.API.STREAM.INFO.>",
			"$JS.API.STREAM.MSG.GET.>",
			"$JS.API.DIRECT.GET.>",
			"$JS.API.CONSUMER.>",
			"$JS.ACK.>",
			"$JS.FC.>",
		}}},
	}
	if cfg.User != "" {
		u.Username, u.Password = cfg.User, cfg.Password
	}
	return u
}

func (e *embedded) connect(opts ...nats.Option) (*nats.Conn, error) {
	conn, err := nats.Connect("", append(opts,
		nats.InProcessServer(e), nats.UserInfo(writer, e.password),
		nats.MaxReconnects(-1), nats.ReconnectWait(startCheck), nats.ReconnectBufSize(-1))...)
	if err != nil {
		return nil, fmt.Errorf("connect to the nats server within: %w", err)
	}
	return conn, nil
}

// InProcessConn connects to whichever server runs now.
func (e *embedded) InProcessConn() (net.Conn, error) { return e.server.Load().InProcessConn() }

func (e *embedded) address() string {
	a, ok := e.server.Load().Addr().(*net.TCPAddr)
	if !ok {
		return ""
	}
	return a.String()
}

// room returns an error if the disk has no room for more.
func (e *embedded) room() error {
	var disk unix.Statfs_t
	if err := unix.Statfs(e.options.StoreDir, &disk); err != nil {
		return fmt.Errorf("look for room in %s: %w", e.options.StoreDir, err)
	}
	if free := disk.Bavail * uint64(disk.Bsize); free < e.keepFree {
		return fmt.Errorf("disk full: %s has %d MB left, of which %d MB are kept free: remove files, or let max_bytes remove old readings",
			e.options.StoreDir, free>>20, e.keepFree>>20)
	}
	return nil
}

// diagnose returns why a request failed with err. After a failed write to the
// disk the server does not answer any more, and takes no message of the stream
// until it is started anew.
func (e *embedded) diagnose(err error) error {
	h := e.server.Load().Healthz(&server.HealthzOptions{Account: server.DEFAULT_GLOBAL_ACCOUNT, Stream: e.stream})
	if h.Error == "" {
		return err
	}
	e.sick.Store(true)
	return fmt.Errorf("%s: %w", h.Error, err)
}

// heal starts the server anew if it needs that.
func (e *embedded) heal(ctx context.Context) error {
	if !e.sick.Load() {
		return nil
	}
	select {
	case e.healing <- struct{}{}:
		defer func() { <-e.healing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if !e.sick.Load() {
		return nil
	}
	e.log.Warn("nats server is started anew after a failed write")
	e.stop()
	if err := e.start(); err != nil {
		return err
	}
	e.sick.Store(false)
	return nil
}

// close ends the server for good: heal waits in vain from then on.
func (e *embedded) close() {
	e.closing.Do(func() {
		e.healing <- struct{}{}
		e.stop()
		e.lock.Close()
	})
}

// stop ends the server and waits until its files are closed.
func (e *embedded) stop() {
	if s := e.server.Load(); s != nil {
		s.Shutdown()
		s.WaitForShutdown()
	}
}
