// Package mqtt takes readings from an external MQTT broker (3.1.1), as a client
// that acknowledges a message only when it is durable.
//
// The flow: the library's reader hands each message to the session, which
// queues it (session.go); one goroutine decodes and appends to the sink, in the
// broker's order and without waiting; the sink says when a message is durable,
// and the acker (acker.go) acknowledges in order; the connection (conn.go)
// writes acknowledgements together. A session that ends, for whatever reason,
// is followed by a new one after a pause (backoff.go), for ever. What was not
// acknowledged the broker sends again, and its receipt keeps it from being
// stored twice.
package mqtt

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"sync"
	"time"

	paho "github.com/eclipse/paho.mqtt.golang"
	"github.com/eclipse/paho.mqtt.golang/packets"

	"sluice/ingest"
	"sluice/reading"
)

// Decoder turns messages into batches; ingest.Decoder is one.
type Decoder interface {
	Decode(ingest.Message) (reading.Batch, error)
	// Raw keeps a payload that Decode refused.
	Raw(m ingest.Message, reason string) reading.Batch
}

// Options say which broker and what of it.
type Options struct {
	Name     string // of this source, in receipts, logs and the status
	URL      string // tcp://host:1883 or tls://host:8883; the port may be left out
	ClientID string // stable: the broker keeps the session under it
	Username string
	Password string
	TLS      *tls.Config // for tls; nil trusts the system's authorities
	Topics   []string    // MQTT topic filters
	QoS      byte        // at most, of the subscriptions: 0, 1 or 2
	// TopicsFile remembers the topics, so that those which are not configured
	// any more are given up at the broker. Empty: it goes on sending them.
	TopicsFile string
	// MaxPayload in bytes is the decoder's limit; of longer payloads only as
	// much is read as shows that they are. 0 means ingest.DefaultMaxPayload.
	MaxPayload int
	Sink       ingest.Sink
	Decoder    Decoder
	Now        func() reading.Time
	Logger     *slog.Logger
}

// Stats are what a client has to tell; the counts are since it was made.
type Stats struct {
	Name      string
	Broker    string
	Connected bool
	Since     time.Time // of Connected
	LastError string    // why the last session ended, or a topic that is refused
	Sessions  uint64
	Messages  uint64
	Repeated  uint64 // marked by the broker as sent before
	Retained  uint64
	Acked     uint64
	Dropped   uint64 // QoS 0 without room for it
	Refused   uint64 // by the sink; the broker keeps them
	Unusable  uint64 // batches of sink nodes that were kept raw
	Waiting   int    // not acknowledged yet
}

// Client keeps one session after another with a broker.
type Client struct {
	o       Options
	address string
	tls     *tls.Config // nil for tcp
	log     *slog.Logger

	mu      sync.Mutex // guards what follows
	stats   Stats
	session *session // at present, for its counts
}

// New returns a client, or everything that is wrong with its options.
func New(o Options) (*Client, error) {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if o.MaxPayload == 0 {
		o.MaxPayload = ingest.DefaultMaxPayload
	}
	c := &Client{o: o, log: o.Logger.With("broker", o.Name)}
	port := "1883"
	u, err := url.Parse(o.URL)
	switch {
	case err != nil:
		fault("url: %w", err)
		u = new(url.URL)
	case u.Scheme == "tls":
		port = "8883"
		c.tls = o.TLS.Clone()
		if c.tls == nil {
			c.tls = new(tls.Config)
		}
		if c.tls.ServerName == "" {
			c.tls.ServerName = u.Hostname()
		}
	case u.Scheme != "tcp":
		fault("url %q: scheme %q is unknown: use tcp:// or tls://", o.URL, u.Scheme)
	}
	if u.Hostname() == "" {
		fault("url %q has no host: write tcp://host:1883", o.URL)
	}
	if u.Port() != "" {
		port = u.Port()
	}
	c.address = net.JoinHostPort(u.Hostname(), port)
	if o.ClientID == "" {
		fault("client id is empty: the broker needs one to keep messages while this client is away")
	}
	if len(o.Topics) == 0 {
		fault("topics: none given: name at least one, such as \"zigbee2mqtt/#\"")
	}
	if o.QoS > 2 {
		fault("qos %d does not exist: use 0, 1 or 2", o.QoS)
	}
	c.stats.Name, c.stats.Broker, c.stats.Since = o.Name, c.address, time.Now()
	if len(faults) > 0 {
		return nil, fmt.Errorf("mqtt source %q: %w", o.Name, errors.Join(faults...))
	}
	return c, nil
}

// Run keeps the client connected until ctx ends; then it acknowledges what is
// durable within a few seconds, disconnects and returns nil.
func (c *Client) Run(ctx context.Context) error {
	var pauses backoff
	logged := ""
	for {
		started := time.Now()
		err := c.runSession(ctx)
		c.disconnected(err)
		if ctx.Err() != nil {
			return nil
		}
		pause := pauses.next(time.Since(started), rand.Float64())
		// One line for each trouble of a kind, not for each attempt.
		if err.Error() != logged || pauses.pause == firstPause {
			logged = err.Error()
			c.log.Warn("mqtt session ended", "cause", err, "retry_in", pause.Round(time.Millisecond))
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

// Stats returns the counts and the state of the connection.
func (c *Client) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.stats
	if c.session != nil {
		c.session.addTo(&st)
	}
	return st
}

func (c *Client) begins(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session = s
}

func (c *Client) connected() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Connected, c.stats.Since, c.stats.LastError = true, time.Now(), ""
	c.stats.Sessions++
}

func (c *Client) disconnected(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session != nil {
		c.session.addTo(&c.stats)
		c.stats.Waiting = 0 // the broker's again
		c.session = nil
	}
	if c.stats.Connected {
		c.stats.Connected, c.stats.Since = false, time.Now()
	}
	if cause != nil {
		c.stats.LastError = cause.Error()
	}
}

func (c *Client) refusedTopic(topic string) {
	c.log.Warn("broker refuses a subscription: give the user the right to read it", "topic", topic)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.LastError = fmt.Sprintf("topic %q: broker refuses the subscription: give the user the right to read it", topic)
}

const (
	connectTimeout = 30 * time.Second
	keepAlive      = 30 * time.Second
	pingTimeout    = 10 * time.Second
)

// library returns a client of the library for one session. Reconnecting is
// ours: a pause must follow when the sink refuses, and a session must not begin
// before what the last one received is with the sink, or order would suffer.
func (c *Client) library(life context.Context, s *session) paho.Client {
	o := paho.NewClientOptions()
	o.AddBroker("tcp://" + c.address) // only says that there is one: dial decides
	o.SetClientID(c.o.ClientID).SetUsername(c.o.Username).SetPassword(c.o.Password)
	o.SetCleanSession(false).SetProtocolVersion(4)
	o.SetAutoReconnect(false).SetConnectRetry(false)
	o.SetOrderMatters(true).SetAutoAckDisabled(true)
	o.SetStore(noStore{})
	o.SetKeepAlive(keepAlive).SetPingTimeout(pingTimeout).SetConnectTimeout(connectTimeout).SetWriteTimeout(pingTimeout)
	o.SetDefaultPublishHandler(func(_ paho.Client, m paho.Message) { s.receive(m) })
	o.SetConnectionLostHandler(func(_ paho.Client, err error) { s.end(fmt.Errorf("connection to %s: %w", c.address, err)) })
	o.SetCustomOpenConnectionFn(func(*url.URL, paho.ClientOptions) (net.Conn, error) { return c.dial(life) })
	return paho.NewClient(o)
}

// dial opens the connection; the name is resolved anew each time.
// It is closed at the latest when life ends.
func (c *Client) dial(life context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(life, connectTimeout)
	defer cancel()
	var d net.Dialer
	raw, err := d.DialContext(ctx, "tcp", c.address)
	if err != nil {
		return nil, err
	}
	if c.tls != nil {
		secured := tls.Client(raw, c.tls)
		if err := secured.HandshakeContext(ctx); err != nil {
			raw.Close()
			return nil, err
		}
		raw = secured
	}
	// Room for the longest topic and the packet identifier in front of the
	// payload, so that a cut payload is still longer than the limit.
	conn := newConn(raw, c.o.MaxPayload+1<<16+4)
	context.AfterFunc(life, func() { conn.Close() })
	return conn, nil
}

// noStore keeps no packets: the broker keeps what is unacknowledged, and this
// client publishes nothing.
type noStore struct{}

var _ paho.Store = noStore{}

func (noStore) Open()                             {}
func (noStore) Put(string, packets.ControlPacket) {}
func (noStore) Get(string) packets.ControlPacket  { return nil }
func (noStore) All() []string                     { return nil }
func (noStore) Del(string)                        {}
func (noStore) Close()                            {}
func (noStore) Reset()                            {}
