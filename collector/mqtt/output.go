// Package mqtt republishes delivered readings on an MQTT broker.
//
// Each pack goes out with QoS 1 on <prefix>/<gateway>/<lane>, then a retained
// message on <prefix>/<gateway>/<lane>/<epoch>/last says how far the stream has
// come; it is what Last knows. The two are not one step: if the connection, the
// broker or the collector ends between them, the packs of that Write come again.
// They carry their sequence numbers, so a consumer can tell. docs/stream.md is
// the format.
package mqtt

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	paho "github.com/eclipse/paho.mqtt.golang"

	"sluice/collector"
	"sluice/collector/pack"
)

const (
	packReadings = 4096
	packBytes    = 512 << 10

	minPause = time.Second // between attempts to reach the broker again
	maxPause = 30 * time.Second
)

// Options say which broker and where on it.
type Options struct {
	URL                string // tcp://host:1883, tls://host:8883
	Username, Password string
	TLS                *tls.Config
	Prefix             string // of every topic, without slashes at its ends
	ClientID           string // stable, and no other client's

	Logger *slog.Logger
}

// Output publishes on one broker. It is safe for concurrent use.
type Output struct {
	opts   Options
	cancel context.CancelFunc
	done   chan struct{} // closed when keep has ended

	mu      sync.Mutex    // guards the fields below
	current *session      // nil while there is no connection
	changed chan struct{} // closed and replaced when current changes
}

var _ collector.Output = (*Output)(nil)

// Open connects. The broker may go and come back afterwards: calls wait for it.
func Open(ctx context.Context, opts Options) (*Output, error) {
	first, err := dial(ctx, opts)
	if err != nil {
		return nil, fmt.Errorf("open mqtt output on %s: %w", opts.URL, err)
	}
	running, cancel := context.WithCancel(context.Background())
	o := &Output{opts: opts, cancel: cancel, done: make(chan struct{}), changed: make(chan struct{})}
	o.set(first)
	go o.keep(running, first)
	return o, nil
}

// keep makes a new session whenever one has ended.
func (o *Output) keep(ctx context.Context, s *session) {
	defer close(o.done)
	for {
		select {
		case <-ctx.Done():
			s.close()
			return
		case <-s.gone:
		}
		o.set(nil)
		o.opts.Logger.Warn("mqtt output lost its broker", "url", o.opts.URL, "error", s.reason)
		if s = o.again(ctx); s == nil {
			return
		}
		o.set(s)
		o.opts.Logger.Info("mqtt output reached its broker again", "url", o.opts.URL)
	}
}

// again dials until it succeeds, or returns nil when ctx ends.
func (o *Output) again(ctx context.Context) *session {
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		s, err := dial(ctx, o.opts)
		if err == nil {
			return s
		}
		o.opts.Logger.Debug("mqtt output cannot reach its broker", "url", o.opts.URL, "error", err)
	}
}

func (o *Output) set(s *session) {
	o.mu.Lock()
	o.current = s
	close(o.changed)
	o.changed = make(chan struct{})
	o.mu.Unlock()
}

// session returns the current session, or waits for one.
func (o *Output) session(ctx context.Context) (*session, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for {
		o.mu.Lock()
		s, changed := o.current, o.changed
		o.mu.Unlock()
		if s != nil {
			return s, nil
		}
		select {
		case <-changed:
		case <-o.done:
			return nil, fmt.Errorf("mqtt output: closed")
		case <-ctx.Done():
			return nil, fmt.Errorf("mqtt output: no connection to %s: %w", o.opts.URL, ctx.Err())
		}
	}
}

// Name implements collector.Output.
func (o *Output) Name() string { return "mqtt" }

// Last implements collector.Output.
func (o *Output) Last(ctx context.Context, s collector.Stream) (uint64, error) {
	session, err := o.session(ctx)
	if err != nil {
		return 0, err
	}
	return session.position(ctx, o.positionTopic(s))
}

func (o *Output) topic(s collector.Stream) string {
	return fmt.Sprintf("%s/%s/%s", o.opts.Prefix, pack.Escape(s.Gateway), s.Lane)
}

func (o *Output) positionTopic(s collector.Stream) string {
	return fmt.Sprintf("%s/%016x/last", o.topic(s), s.Epoch)
}

// Write implements collector.Output. Packs are under way together; the position
// follows when the broker has acknowledged all of them.
func (o *Output) Write(ctx context.Context, s collector.Stream, after uint64, ds []collector.Delivery) error {
	session, err := o.session(ctx)
	if err != nil {
		return err
	}
	last, err := session.position(ctx, o.positionTopic(s))
	if err != nil {
		return err
	}
	if last != after {
		return collector.ErrConflict
	}
	if len(ds) == 0 {
		return nil
	}
	topic := o.topic(s)
	var tokens []paho.Token
	for p := range pack.Cut(ds, pack.Limits{Readings: packReadings, Bytes: packBytes}) {
		to, body := topic, senmlPayload(s.Epoch, p)
		if p.Unreadable || p.Parts > 1 {
			to, body = topic+"/aside", asidePayload(s.Epoch, p)
		}
		tokens = append(tokens, session.client.Publish(to, qos, false, body))
	}
	for _, t := range tokens {
		if err := wait(ctx, t); err != nil {
			return fmt.Errorf("publish on %s: %w", topic, err)
		}
	}
	return session.advance(ctx, o.positionTopic(s), ds[len(ds)-1].Last())
}

// Close implements collector.Output. Calls under way fail.
func (o *Output) Close() error {
	o.cancel()
	<-o.done
	o.set(nil)
	return nil
}

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }
