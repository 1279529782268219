package mqtt

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	paho "github.com/eclipse/paho.mqtt.golang"

	"sluice/collector/pack"
)

const (
	qos = 1

	connectTimeout = 10 * time.Second
	keepAlive      = 15 * time.Second
	pingTimeout    = 10 * time.Second
	// writeTimeout bounds how long a publish waits for a stuck connection.
	writeTimeout = 5 * time.Second
	// quiesce is how long close lets a message under way finish.
	quiesce = 250 * time.Millisecond
)

// session is one connection to the broker and what was learned on it. It is
// never resumed: what was under way when it ended has failed, and the positions
// are asked for again on the next.
type session struct {
	client paho.Client
	end    sync.Once
	gone   chan struct{} // closed when the connection is lost or closed
	reason error         // why; read it after gone is closed
	echo   string        // topic of messages to ourselves

	mu        sync.Mutex        // guards the fields below
	positions map[string]uint64 // by topic, of the topics subscribed to
	asked     map[string]bool   // topics whose retained message is known
	echoes    uint64            // how many messages to ourselves were sent
	awaited   map[uint64]chan struct{}
}

func dial(ctx context.Context, opts Options) (*session, error) {
	s := &session{
		gone:      make(chan struct{}),
		echo:      fmt.Sprintf("%s/%s/echo", opts.Prefix, pack.Escape(opts.ClientID)),
		positions: make(map[string]uint64),
		asked:     make(map[string]bool),
		awaited:   make(map[uint64]chan struct{}),
	}
	s.client = paho.NewClient(paho.NewClientOptions().
		AddBroker(opts.URL).
		SetClientID(opts.ClientID).
		SetUsername(opts.Username).
		SetPassword(opts.Password).
		SetTLSConfig(opts.TLS).
		SetCleanSession(true).
		// The library would send again later what a caller has given up.
		SetAutoReconnect(false).
		SetConnectTimeout(connectTimeout).
		SetWriteTimeout(writeTimeout).
		SetKeepAlive(keepAlive).
		SetPingTimeout(pingTimeout).
		SetDefaultPublishHandler(s.received).
		SetConnectionLostHandler(func(_ paho.Client, err error) { s.ended(err) }))
	err := wait(ctx, s.client.Connect())
	if err == nil {
		err = wait(ctx, s.client.Subscribe(s.echo, qos, nil))
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// received takes in positions: the retained one, our own as they are published,
// and those of another collector, which then has the stream.
func (s *session) received(_ paho.Client, m paho.Message) {
	n, err := strconv.ParseUint(string(m.Payload()), 10, 64)
	if err != nil {
		return // not ours; a position that is not there is 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.Topic() == s.echo {
		if arrived := s.awaited[n]; arrived != nil {
			close(arrived)
			delete(s.awaited, n)
		}
		return
	}
	s.positions[m.Topic()] = max(n, s.positions[m.Topic()])
}

// position returns the number retained on topic, 0 if there is none. MQTT has no
// way to say that nothing is retained; so after subscribing we send ourselves a
// message, and when that has come, a retained one would have come before.
func (s *session) position(ctx context.Context, topic string) (uint64, error) {
	s.mu.Lock()
	n, asked := s.positions[topic], s.asked[topic]
	s.mu.Unlock()
	if asked {
		return n, nil
	}
	err := wait(ctx, s.client.Subscribe(topic, qos, nil))
	if err == nil {
		err = s.roundTrip(ctx)
	}
	if err != nil {
		return 0, fmt.Errorf("read position on %s: %w", topic, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[topic] = true
	return s.positions[topic], nil
}

func (s *session) roundTrip(ctx context.Context) error {
	arrived := make(chan struct{})
	s.mu.Lock()
	s.echoes++
	n := s.echoes
	s.awaited[n] = arrived
	s.mu.Unlock()
	if err := wait(ctx, s.client.Publish(s.echo, qos, false, decimal(n))); err != nil {
		return err
	}
	select {
	case <-arrived:
		return nil
	case <-s.gone:
		return s.reason
	case <-ctx.Done():
		return ctx.Err()
	}
}

// advance retains n on topic.
func (s *session) advance(ctx context.Context, topic string, n uint64) error {
	if err := wait(ctx, s.client.Publish(topic, qos, true, decimal(n))); err != nil {
		return fmt.Errorf("publish position on %s: %w", topic, err)
	}
	s.mu.Lock()
	s.positions[topic] = max(n, s.positions[topic])
	s.mu.Unlock()
	return nil
}

func (s *session) close() {
	s.client.Disconnect(uint(quiesce.Milliseconds()))
	s.ended(errors.New("closed"))
}

func (s *session) ended(reason error) {
	s.end.Do(func() {
		s.reason = reason
		close(s.gone)
	})
}

// wait waits for the broker's answer, until ctx ends.
func wait(ctx context.Context, t paho.Token) error {
	select {
	case <-t.Done():
		return t.Error()
	case <-ctx.Done():
		return ctx.Err()
	}
}
