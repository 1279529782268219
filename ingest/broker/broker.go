// Package broker is the gateway's own MQTT broker, versions 3.1.1 and 5, on
// mochi-mqtt/server. It gives the acknowledgement of a publish only after its
// readings are synced to disk, and it serves local subscribers as any broker
// does.
//
// The way of a publish, in the order of the code:
//
//  1. publish.go, OnPacketRead: the topic alias is resolved, and the packet
//     identifier and the QoS are taken out of the packet, so that the library
//     sees a QoS 0 publish and leaves acknowledgement to us. (Its own state for
//     inbound identifiers shares one map with the outbound ones.)
//  2. publish.go, OnPublish: the message is decoded, a slot of the connection's
//     window is opened, and the batch is handed to the sink without waiting.
//  3. The library delivers it to local subscribers and retains it, at once.
//  4. window.go: the sink reports the slot durable; the acknowledgements of all
//     slots that are complete from the oldest on are put into the outbox.
//  5. outbox.go, run: the connection's writer sends them in one write.
//
// The way of a message to a subscriber: the library finds the subscribers, and
// hook.go, OnPacketEncode, takes what it would write to the client's outbox,
// where it waits its turn; session.go remembers it until the client has it.
package broker

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"

	"sluice/ingest"
	"sluice/reading"
)

const (
	// windowSize is how many publishes of one connection may wait for the disk
	// or for their acknowledgement to be written; MQTT 5 clients are told it
	// as the Receive Maximum. Beyond it the connection is not read. The sink
	// remembers as many: what a client may send again must be recognised.
	windowSize = 256
	// aliasMaximum is how many topic aliases an MQTT 5 client may set.
	aliasMaximum = 256
	// sessionExpiry is how long, in seconds, the subscriptions and the queue of
	// a client that is away are kept.
	sessionExpiry = 24 * 60 * 60
	// sessionsPerClient is how many sessions may be known for each connection
	// allowed.
	sessionsPerClient = 2
	// sysInterval is how often, in seconds, $SYS topics are published.
	sysInterval = 60
	readBuffer  = 16 << 10
	writeBuffer = 1 // none: the outbox gathers small packets

	defaultMaxClients = 512
	defaultMaxPacket  = 1 << 20
)

// Decoder turns a message into readings; it is called from many goroutines. An
// error means that the sender should be refused; a batch without readings that
// there is nothing to store.
type Decoder interface {
	Decode(ingest.Message) (reading.Batch, error)
	// Raw keeps a payload that Decode refused.
	Raw(m ingest.Message, reason string) reading.Batch
}

// Listener is an address that the broker accepts connections on.
type Listener struct {
	Address string      // host:port
	TLS     *tls.Config // nil for plain TCP
}

// Options configure a Broker.
type Options struct {
	Listeners []Listener
	Users     []User
	Anonymous Rights // of clients without a user name; empty: there are none
	Sink      ingest.Sink
	Decoder   Decoder
	Now       func() reading.Time
	// RetainedFile keeps retained messages across restarts; empty: they are
	// kept in memory only.
	RetainedFile string
	MaxClients   int // connections at once; 0: 512
	MaxPacket    int // bytes of the largest packet; 0: 1 MiB
	Logger       *slog.Logger
}

// Broker is an MQTT broker whose acknowledgements mean durable.
type Broker struct {
	options  Options
	log      *slog.Logger
	server   *mqtt.Server
	hook     *hook
	listener []*listener
	retained *retained
	counters counters
	secret   [32]byte // keys the digests of passwords that are held in memory

	directory atomic.Pointer[directory]
	hashing   sync.Mutex   // one slow password hash at a time
	waiting   atomic.Int64 // bytes of messages that wait for subscribers

	// subscribed counts changes of subscriptions: what has no subscriber at one
	// count may have one at the next.
	subscribed atomic.Uint64
	departures atomic.Uint64 // counts ends of connections

	mu       sync.Mutex
	arriving map[string]*conn // by client id: connected but not established

	closing   context.Context // ends when Close begins
	stop      context.CancelFunc
	closeOnce sync.Once
	closeErr  error
}

// New checks the options, reads the retained messages and opens the listeners;
// clients are served from Serve on. Its errors say which address, user or file
// is at fault.
func New(o Options) (*Broker, error) {
	if o.Sink == nil || o.Decoder == nil || o.Now == nil || o.Logger == nil {
		return nil, errors.New("mqtt broker: sink, decoder, clock and logger are required")
	}
	if len(o.Listeners) == 0 {
		return nil, errors.New("mqtt broker: no listener: give at least one address, such as 127.0.0.1:1883")
	}
	if o.MaxClients == 0 {
		o.MaxClients = defaultMaxClients
	}
	if o.MaxPacket == 0 {
		o.MaxPacket = defaultMaxPacket
	}
	b := &Broker{options: o, arriving: map[string]*conn{}}
	b.log = slog.New(newQuietHandler(o.Logger.Handler(), slog.LevelInfo))
	b.closing, b.stop = context.WithCancel(context.Background())
	if _, err := rand.Read(b.secret[:]); err != nil {
		return nil, fmt.Errorf("mqtt broker secret: %w", err)
	}
	if err := b.SetUsers(o.Users, o.Anonymous); err != nil {
		return nil, err
	}

	b.server = mqtt.New(&mqtt.Options{
		Capabilities:             b.capabilities(),
		ClientNetReadBufferSize:  readBuffer,
		ClientNetWriteBufferSize: writeBuffer,
		SysTopicResendInterval:   sysInterval,
		Logger:                   slog.New(newQuietHandler(o.Logger.Handler(), slog.LevelWarn)),
	})
	b.hook = &hook{broker: b}
	if err := b.server.AddHook(b.hook, nil); err != nil {
		return nil, fmt.Errorf("mqtt broker: %w", err)
	}
	var err error
	if b.retained, err = openRetained(o.RetainedFile, b.log); err != nil {
		return nil, err
	}
	b.retained.restore(b.server.Topics, time.Now())

	for i, l := range o.Listeners {
		ln, err := newListener(b, fmt.Sprintf("listener-%d", i), l)
		if err == nil {
			b.listener = append(b.listener, ln)
			err = b.server.AddListener(ln)
		}
		if err != nil {
			for _, ln := range b.listener {
				_ = ln.ln.Close()
			}
			return nil, fmt.Errorf("mqtt listener %s: %w; is another broker running there?", l.Address, err)
		}
	}
	return b, nil
}

func (b *Broker) capabilities() *mqtt.Capabilities {
	c := mqtt.NewDefaultServerCapabilities()
	c.MaximumClients = int64(b.options.MaxClients)
	c.MaximumPacketSize = uint32(b.options.MaxPacket)
	c.MaximumClientWritesPending = queueSize
	c.MaximumInflight = math.MaxUint16 // the allowance decides
	c.ReceiveMaximum = windowSize
	c.TopicAliasMaximum = aliasMaximum
	c.MaximumSessionExpiryInterval = sessionExpiry
	// With a maximum, the library removes retained messages of that age, which
	// MQTT does not allow: a device's state is retained until it changes.
	c.MaximumMessageExpiryInterval = 0
	return c
}

// Addrs returns the addresses that the broker listens on, in the order of the
// options.
func (b *Broker) Addrs() []net.Addr {
	var as []net.Addr
	for _, l := range b.listener {
		as = append(as, l.ln.Addr())
	}
	return as
}

// Serve serves clients until ctx ends or Close is called, and returns what
// Close returns.
func (b *Broker) Serve(ctx context.Context) error {
	if err := b.server.Serve(); err != nil {
		_ = b.Close()
		return fmt.Errorf("mqtt broker: %w", err)
	}
	saved := make(chan struct{})
	go func() {
		defer close(saved)
		b.retained.run(b.closing)
	}()
	select {
	case <-ctx.Done():
	case <-b.closing.Done():
	}
	err := b.Close()
	<-saved
	return err
}

// Close disconnects every client, publishes the wills that are due, and saves
// the retained messages. Publishes that are not durable yet are not
// acknowledged: their clients send them again. The sink must still be open.
func (b *Broker) Close() error {
	b.closeOnce.Do(func() {
		b.stop()
		if err := b.server.Close(); err != nil {
			b.closeErr = fmt.Errorf("mqtt broker close: %w", err)
		}
		if err := b.retained.save(); err != nil {
			b.closeErr = errors.Join(b.closeErr, err)
		}
	})
	return b.closeErr
}

// hasSubscribers reports whether anybody, connected or not, is to get what is
// published on topic.
func (b *Broker) hasSubscribers(topic string) bool {
	s := b.server.Topics.Subscribers(topic)
	return len(s.Subscriptions) > 0 || len(s.Shared) > 0
}

// countSent counts a message to a subscriber for $SYS.
func (b *Broker) countSent() { atomic.AddInt64(&b.server.Info.MessagesSent, 1) }

// disconnect ends a connection. Only MQTT 5 has a packet with which the server
// says why (MQTT 5.0, 3.14); the library would send it to older clients too.
func (b *Broker) disconnect(cl *mqtt.Client, why packets.Code) {
	if cl.Properties.ProtocolVersion == 5 {
		_ = b.server.DisconnectClient(cl, why)
		return
	}
	cl.Stop(why)
}
