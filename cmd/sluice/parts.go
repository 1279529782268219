package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"sluice/admin"
	"sluice/config"
	"sluice/ingest/broker"
	"sluice/ingest/mqtt"
	"sluice/ingest/push"
)

// part is a piece of the gateway that starts and stops by itself.
type part struct {
	name     string
	settings string // everything that it runs with
	start    func() (stop func(), err error)
}

// parts are the parts that c asks for, in the order in which they start: first
// what carries readings away, then what takes them in, then what shows them.
func (g *gateway) parts(c *config.Gateway) []part {
	var parts []part
	add := func(name, settings string, start func() (func(), error)) {
		parts = append(parts, part{name, settings, start})
	}
	if u := &c.Uplink; len(u.Collectors) > 0 {
		add("uplink", settings(u, u.CA, u.Cert, u.Key), func() (func(), error) { return g.startUplink(c) })
	}
	if b := c.Broker; b.Enabled {
		// Users and rights are changed while it runs: see setUsers.
		b.Users, b.Anonymous, b.AnonymousRights = nil, false, config.Rights{}
		add("broker", settings(b, b.TLSCert, b.TLSKey), func() (func(), error) { return g.startBroker(c) })
	}
	for _, m := range c.MQTT {
		add("mqtt "+m.Name, settings(m, m.CA, m.Cert, m.Key), func() (func(), error) { return g.startClient(c, m) })
	}
	if p := c.Push; p.Listen != "" {
		add("push", settings(p, p.TLSCert, p.TLSKey), func() (func(), error) { return g.startPush(p) })
	}
	add("status", settings([]string{c.Gateway.StatusSocket, c.Metrics.Listen}), func() (func(), error) { return g.startAdmin(c) })
	return parts
}

// settings puts values and the contents of files into one text that differs if
// any of them does.
func settings(values any, files ...string) string {
	b, err := json.Marshal(values)
	if err != nil {
		panic(err) // configuration types hold nothing that cannot be encoded
	}
	for _, f := range files {
		if f == "" {
			continue
		}
		data, err := os.ReadFile(f)
		if err != nil {
			b = append(b, err.Error()...)
			continue
		}
		sum := sha256.Sum256(data)
		b = append(b, sum[:]...)
	}
	return string(b)
}

// background runs f until it is stopped, and logs how it ended if nobody
// stopped it.
func background(log *slog.Logger, name string, f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := f(ctx); err != nil {
			log.Error("part ended", "part", name, "error", err)
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

func (g *gateway) startBroker(c *config.Gateway) (func(), error) {
	o := broker.Options{
		Sink: sink{g.store}, Decoder: g.decoder, Now: g.clock.Now,
		RetainedFile: filepath.Join(c.Gateway.DataDir, "retained"),
		MaxPacket:    int(c.Broker.MaxPacket), Logger: g.log,
	}
	o.Users, o.Anonymous = users(c)
	for _, a := range c.Broker.Listen {
		o.Listeners = append(o.Listeners, broker.Listener{Address: a})
	}
	if len(c.Broker.TLSListen) > 0 {
		secure, err := serverTLS(c.Broker.TLSCert, c.Broker.TLSKey)
		if err != nil {
			return nil, err
		}
		for _, a := range c.Broker.TLSListen {
			o.Listeners = append(o.Listeners, broker.Listener{Address: a, TLS: secure})
		}
	}
	b, err := broker.New(o)
	if err != nil {
		return nil, err
	}
	g.setBroker(b)
	stop := background(g.log, "broker", b.Serve)
	return func() {
		stop()
		g.setBroker(nil)
	}, nil
}

func (g *gateway) setBroker(b *broker.Broker) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.broker = b
}

// setUsers lets the broker know its users if they changed.
func (g *gateway) setUsers(c *config.Gateway) error {
	if g.broker == nil {
		return nil
	}
	if now := g.config; now != nil && settings(now.Broker) == settings(c.Broker) {
		return nil
	}
	return g.broker.SetUsers(users(c))
}

// users are the broker's users and what clients without a name may do.
func users(c *config.Gateway) ([]broker.User, broker.Rights) {
	var us []broker.User
	for _, u := range c.Broker.Users {
		us = append(us, broker.User{Name: u.Name, Password: u.Password, PasswordHash: u.PasswordHash,
			Rights: broker.Rights{Publish: u.Publish, Subscribe: u.Subscribe}})
	}
	if !c.Broker.Anonymous {
		return us, broker.Rights{}
	}
	return us, broker.Rights(c.Broker.AnonymousRights)
}

func (g *gateway) startClient(c *config.Gateway, m config.MQTT) (func(), error) {
	var secure *tls.Config
	if m.CA != "" || m.Cert != "" {
		secure = &tls.Config{MinVersion: tls.VersionTLS12}
		var err error
		if m.CA != "" {
			if secure.RootCAs, err = authorities(m.CA); err != nil {
				return nil, err
			}
		}
		if m.Cert != "" {
			pair, err := tls.LoadX509KeyPair(m.Cert, m.Key)
			if err != nil {
				return nil, err
			}
			secure.Certificates = []tls.Certificate{pair}
		}
	}
	client, err := mqtt.New(mqtt.Options{
		Name: m.Name, URL: m.URL, ClientID: m.ClientID, Username: m.Username, Password: m.Password, TLS: secure,
		Topics: m.Topics, QoS: byte(m.QoS), TopicsFile: filepath.Join(c.Gateway.DataDir, "mqtt-"+url.PathEscape(m.Name)+".topics"),
		Sink: sink{g.store}, Decoder: g.decoder, Now: g.clock.Now, Logger: g.log,
	})
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	g.clients = append(g.clients, client)
	g.mu.Unlock()
	stop := background(g.log, "mqtt "+m.Name, client.Run)
	return func() {
		stop()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.clients = slices.DeleteFunc(g.clients, func(c *mqtt.Client) bool { return c == client })
	}, nil
}

func (g *gateway) startPush(p config.Push) (func(), error) {
	tokens := make(map[string]string, len(p.Nodes))
	for _, n := range p.Nodes {
		tokens[n.Token] = n.Name
	}
	handler := push.New(push.Options{Sink: sink{g.store}, Pushed: g.decoder.Pushed, Now: g.clock.Now, Tokens: tokens, MaxBody: int64(p.MaxBody), Logger: g.log})
	listener, err := net.Listen("tcp", p.Listen)
	if err != nil {
		return nil, fmt.Errorf("%w; choose another push.listen, or stop what listens there", err)
	}
	if p.TLSCert != "" {
		secure, err := serverTLS(p.TLSCert, p.TLSKey)
		if err != nil {
			listener.Close()
			return nil, err
		}
		secure.NextProtos = []string{"http/1.1"}
		listener = tls.NewListener(listener, secure)
	}
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       2 * time.Minute, // of a batch over a slow link
		WriteTimeout:      3 * time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(g.log.Handler(), slog.LevelDebug),
	}
	g.setPush(handler)
	stop := background(g.log, "push", func(ctx context.Context) error {
		ended := make(chan error, 1)
		go func() { ended <- server.Serve(listener) }()
		select {
		case err := <-ended:
			return err
		case <-ctx.Done():
		}
		// Batches that are being committed get their answer.
		wait, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if err := server.Shutdown(wait); err != nil {
			server.Close()
		}
		<-ended
		return nil
	})
	return func() {
		stop()
		g.setPush(nil)
	}, nil
}

func (g *gateway) setPush(s *push.Server) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.push = s
}

func (g *gateway) startAdmin(c *config.Gateway) (func(), error) {
	s, err := admin.Serve(admin.Options{Status: g.status, Socket: c.Gateway.StatusSocket, Listen: c.Metrics.Listen, Logger: g.log})
	if err != nil {
		return nil, err
	}
	return func() {
		if err := s.Close(); err != nil {
			g.log.Warn("status server close", "error", err)
		}
	}, nil
}

// authorities reads a file of CA certificates.
func authorities(file string) (*x509.CertPool, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s: holds no certificate; give a PEM file that begins with -----BEGIN CERTIFICATE-----", file)
	}
	return pool, nil
}

// serverTLS is how a listener proves who it is.
func serverTLS(cert, key string) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}
