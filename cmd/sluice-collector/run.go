package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"sluice/collector"
	"sluice/collector/jetstream"
	"sluice/collector/jsonl"
	"sluice/collector/mqtt"
	"sluice/config"
)

// memoryRoom is how much memory the collector takes beside the readings it has
// not written yet before it collects garbage more often. Without it the NATS
// server within lets the buffers of a second's messages pile up.
const memoryRoom = 64 << 20

// openTimeout bounds how long an output elsewhere may take to be reached.
const openTimeout = 30 * time.Second

// serve is the collector: outputs, then listeners, until ctx ends; then what has
// come is written and acknowledged, and everything closed in reverse.
func serve(ctx context.Context, args []string, _, stderr io.Writer) error {
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	path := flags.String("config", "/etc/sluice/collector.toml", "configuration `file`")
	if err := parse(flags, args, stderr, 0); err != nil {
		return err
	}
	c, err := load(*path, stderr)
	if err != nil {
		return err
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Log.Level)); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))

	outputs, readAt, err := openOutputs(ctx, c, log)
	defer closeOutputs(outputs, log)
	if err != nil {
		return err
	}
	limits := collector.DefaultLimits()
	if debug.SetMemoryLimit(-1) == math.MaxInt64 { // GOMEMLIMIT says nothing else
		debug.SetMemoryLimit(int64(limits.Memory) + memoryRoom)
	}
	security, err := gatewaySecurity(c.Collector)
	if err != nil {
		return err
	}
	gateways := &gateways{log: log}
	defer gateways.close()
	gateways.openTunnels(c)
	if err := gateways.listen(&c.Collector, security); err != nil {
		return err
	}
	col := collector.New(collector.Options{Outputs: outputs, Limits: limits, Tunnels: gateways.leases(), Logger: log})

	var readers net.Listener
	if c.Collector.MetricsListen != "" {
		if readers, err = net.Listen("tcp", c.Collector.MetricsListen); err != nil {
			return err
		}
		defer readers.Close()
	}

	group, ctx := errgroup.WithContext(ctx)
	gateways.serve(ctx, col, group.Go)
	if readers != nil {
		p := &page{collector: col, outputs: outputNames(outputs), readAt: readAt, started: time.Now()}
		group.Go(func() error { return servePage(ctx, readers, p.handler()) })
	}
	err = group.Wait()
	log.Info("collector stopped")
	return err
}

// openOutputs opens every output that c names. It returns those that are open
// also with an error, and where NATS clients can read, if they can.
func openOutputs(ctx context.Context, c *config.Collector, log *slog.Logger) (outputs []collector.Output, readAt string, err error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if c.JetStream.Enabled {
		opts, err := jetstreamOptions(c, log)
		if err != nil {
			return outputs, "", err
		}
		o, err := jetstream.Open(ctx, opts)
		if err != nil {
			return outputs, "", err
		}
		outputs, readAt = append(outputs, o), o.Address()
		if readAt != "" {
			log.Info("nats clients can read", "address", readAt, "stream", opts.Stream)
		}
	}
	if m := c.MQTT; m != nil {
		security, err := authorities(m.CA)
		if err != nil {
			return outputs, "", err
		}
		host, err := os.Hostname()
		if err != nil {
			return outputs, "", err
		}
		o, err := mqtt.Open(ctx, mqtt.Options{URL: m.URL, Username: m.Username, Password: m.Password,
			TLS: security, Prefix: m.TopicPrefix, ClientID: "sluice-collector-" + host, Logger: log})
		if err != nil {
			return outputs, "", err
		}
		outputs = append(outputs, o)
	}
	if f := c.Files; f != nil {
		o, err := jsonl.Open(jsonl.Options{Dir: f.Dir, RotateBytes: int64(f.RotateBytes), Keep: f.Keep})
		if err != nil {
			return outputs, "", err
		}
		outputs = append(outputs, o)
	}
	return outputs, readAt, nil
}

func closeOutputs(outputs []collector.Output, log *slog.Logger) {
	for i := len(outputs) - 1; i >= 0; i-- {
		if err := outputs[i].Close(); err != nil {
			log.Error("close output", "output", outputs[i].Name(), "error", err)
		}
	}
}

func outputNames(outputs []collector.Output) []string {
	var ns []string
	for _, o := range outputs {
		ns = append(ns, o.Name())
	}
	return ns
}

func jetstreamOptions(c *config.Collector, log *slog.Logger) (jetstream.Options, error) {
	j := c.JetStream
	opts := jetstream.Options{
		Stream:   j.Stream,
		Replicas: j.Replicas,
		MaxBytes: int64(j.MaxBytes),
		MaxAge:   time.Duration(j.MaxAge),
		Logger:   log,
	}
	if j.Embedded {
		opts.Server = &jetstream.Server{Dir: j.Dir, Listen: j.Listen, User: j.User, Password: j.Password}
		if j.Listen != "" && !loopback(j.Listen) {
			// A password is not to cross a network in the clear.
			cert, err := tls.LoadX509KeyPair(c.Collector.Cert, c.Collector.Key)
			if err != nil {
				return opts, fmt.Errorf("nats listener: %w", err)
			}
			opts.Server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
		}
		return opts, nil
	}
	security, err := authorities(j.CA)
	if err != nil {
		return opts, err
	}
	opts.Cluster = &jetstream.Cluster{Credentials: j.Credentials, User: j.User, Password: j.Password, TLS: security}
	for url := range strings.SplitSeq(j.URL, ",") {
		opts.Cluster.URLs = append(opts.Cluster.URLs, strings.TrimSpace(url))
	}
	return opts, nil
}

func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// gatewaySecurity is the collector's certificate, and the authority that signs
// gateways'.
func gatewaySecurity(f config.FarEnd) (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("collector certificate: %w", err)
	}
	pool, err := readAuthorities(f.CA)
	if err != nil {
		return nil, err
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: pool}, nil
}

// authorities trusts those in a file, or the system's if there is none.
func authorities(file string) (*tls.Config, error) {
	if file == "" {
		return nil, nil
	}
	pool, err := readAuthorities(file)
	if err != nil {
		return nil, err
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}

func readAuthorities(file string) (*x509.CertPool, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s: no certificate in it", file)
	}
	return pool, nil
}

// servePage serves HTTP until ctx ends.
func servePage(ctx context.Context, ln net.Listener, handler http.Handler) error {
	s := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	if err := s.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve status on %s: %w", ln.Addr(), err)
	}
	return nil
}
