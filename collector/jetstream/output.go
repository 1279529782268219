// Package jetstream keeps delivered readings in a NATS JetStream stream: in a
// server of its own within the process, or in a cluster that is already there.
//
// One message is one pack of consecutive readings of one collector.Stream. Its
// headers carry the sequence numbers, so the last message of a subject is all
// the memory that delivering once needs; and each message is published with
// the condition that the one before it is still the subject's last, so that of
// two collectors on one cluster only one can continue a stream.
// docs/stream.md is the format for consumers.
package jetstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"sluice/collector"
	"sluice/collector/pack"
)

const (
	// DefaultStream is the name of the stream unless Options say another.
	DefaultStream = "SLUICE"

	// packReadings and packBytes bound a message. Each message costs one sync
	// of the disk, so packs are large; NATS refuses payloads over 1 MiB unless
	// told otherwise, and half of it is where its own advice ends.
	packReadings = 4096
	packBytes    = 512 << 10

	// headerRoom is what is left of a server's payload limit for our headers.
	headerRoom = 4 << 10

	// requestTimeout bounds one request: a server that dies takes the requests
	// it had with it, and nobody answers them.
	requestTimeout = 5 * time.Second

	// connectTimeout bounds one attempt to reach one server.
	connectTimeout = 5 * time.Second
)

// Options say where the stream lives and what it keeps. Exactly one of Server
// and Cluster is set.
type Options struct {
	Server  *Server  // run a server within this process
	Cluster *Cluster // use servers that run elsewhere

	Stream   string        // DefaultStream if empty
	Replicas int           // copies in a cluster, 1 to 5; 0 is 1
	MaxBytes int64         // the oldest messages go beyond it; 0 keeps all
	MaxAge   time.Duration // messages go when older; 0 keeps all

	Logger *slog.Logger
}

// Output writes to one stream. It is safe for concurrent use.
type Output struct {
	log    *slog.Logger
	server *embedded // nil on a cluster
	conn   *nats.Conn
	js     jetstream.JetStream
	stream jetstream.Stream
	limits pack.Limits

	mu   sync.Mutex // guards tips
	tips map[collector.Stream]tip
}

var _ collector.Output = (*Output)(nil)

// tip is the newest message of a subject as this output has last seen it.
type tip struct {
	message uint64 // its sequence number in the JetStream stream, 0 for none
	reading uint64 // the last reading complete with it, 0 for none
}

// Open starts or reaches the server and creates the stream, or brings an
// existing one's limits in line with the options. A stream that could lose what
// was delivered before its limits are reached is refused.
func Open(ctx context.Context, opts Options) (*Output, error) {
	if (opts.Server == nil) == (opts.Cluster == nil) {
		return nil, errors.New("open jetstream: set either a server of its own or a cluster")
	}
	if opts.Stream == "" {
		opts.Stream = DefaultStream
	}
	o := &Output{log: opts.Logger, tips: make(map[collector.Stream]tip)}
	if err := o.open(ctx, opts); err != nil {
		o.Close()
		return nil, fmt.Errorf("open jetstream: %w", err)
	}
	return o, nil
}

func (o *Output) open(ctx context.Context, opts Options) (err error) {
	if opts.Server != nil {
		if o.server, err = startServer(*opts.Server, opts.Stream, o.log); err != nil {
			return err
		}
		o.conn, err = o.server.connect(o.watch()...)
	} else {
		o.conn, err = opts.Cluster.connect(ctx, o.watch()...)
	}
	if err != nil {
		return err
	}
	if o.js, err = jetstream.New(o.conn); err != nil {
		return err
	}
	o.limits = pack.Limits{Readings: packReadings, Bytes: packBytes}
	if room := int(o.conn.MaxPayload()) - headerRoom; room < o.limits.Bytes {
		if room < headerRoom {
			return fmt.Errorf("the server's max_payload is %d bytes: set it to 1MB", o.conn.MaxPayload())
		}
		o.limits.Bytes = room
	}
	o.stream, err = ensureStream(ctx, o.js, opts)
	return err
}

// watch reports what happens to the connection, once a change.
func (o *Output) watch() []nats.Option {
	return []nats.Option{
		nats.Name("sluice-collector"),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				o.log.Warn("nats connection lost", "error", err)
			}
		}),
		nats.ReconnectHandler(func(c *nats.Conn) {
			o.log.Info("nats connected again", "server", c.ConnectedUrlRedacted())
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			o.log.Warn("nats reports an error", "error", err)
		}),
	}
}

// Name implements collector.Output.
func (o *Output) Name() string { return "jetstream" }

// Address is where ordinary clients reach the server of its own, as host:port;
// empty if it does not listen or the stream is in a cluster.
func (o *Output) Address() string {
	if o.server == nil {
		return ""
	}
	return o.server.address()
}

// Last implements collector.Output. It asks the stream each time.
func (o *Output) Last(ctx context.Context, s collector.Stream) (uint64, error) {
	t, err := o.load(ctx, s)
	return t.reading, err
}

func (o *Output) load(ctx context.Context, s collector.Stream) (t tip, err error) {
	if o.server != nil {
		if err := o.server.heal(ctx); err != nil {
			return tip{}, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	subject := Subject(s)
	for {
		raw, err := o.stream.GetLastMsgForSubject(ctx, subject)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			break
		}
		if err != nil {
			return tip{}, fmt.Errorf("read last message of %s: %w", subject, o.diagnose(err))
		}
		last, err := strconv.ParseUint(raw.Header.Get(HeaderLast), 10, 64)
		if err == nil {
			t = tip{message: raw.Sequence, reading: last}
			break
		}
		if o.server == nil {
			return tip{}, fmt.Errorf("read last message of %s: header %s: %w: "+
				"something else publishes there; deny it and delete message %d",
				subject, HeaderLast, err, raw.Sequence)
		}
		// The server lets a client name this subject as where to send an answer.
		o.log.Warn("message that is not the collector's removed", "subject", subject, "message", raw.Sequence)
		if err := o.stream.DeleteMsg(ctx, raw.Sequence); err != nil {
			return tip{}, fmt.Errorf("delete message %d of %s: %w", raw.Sequence, subject, err)
		}
	}
	o.setTip(s, t)
	return t, nil
}

// diagnose adds to err what the server within says of itself.
func (o *Output) diagnose(err error) error {
	if o.server == nil {
		return err
	}
	return o.server.diagnose(err)
}

func (o *Output) setTip(s collector.Stream, t tip) {
	o.mu.Lock()
	o.tips[s] = t
	o.mu.Unlock()
}

func (o *Output) forgetTip(s collector.Stream) {
	o.mu.Lock()
	delete(o.tips, s)
	o.mu.Unlock()
}

// Write implements collector.Output. Packs are published one by one, each
// synced before the next: what an error leaves behind is always a beginning of
// ds, and Last tells how much of it. After an error whose outcome is unknown
// the stream is asked before anything else is written.
func (o *Output) Write(ctx context.Context, s collector.Stream, after uint64, ds []collector.Delivery) error {
	if o.server != nil {
		if err := o.server.room(); err != nil {
			return err
		}
	}
	o.mu.Lock()
	t, known := o.tips[s]
	o.mu.Unlock()
	if !known {
		var err error
		if t, err = o.load(ctx, s); err != nil {
			return err
		}
	}
	if t.reading != after {
		o.forgetTip(s)
		return collector.ErrConflict
	}
	subject := Subject(s)
	for p := range pack.Cut(ds, o.limits) {
		message, err := o.publish(ctx, subject, s, t.message, p)
		if err != nil {
			o.forgetTip(s)
			if errors.Is(err, collector.ErrConflict) {
				return err
			}
			return fmt.Errorf("publish readings %d to %d on %s: %w", p.First, p.Last, subject, o.diagnose(err))
		}
		t = tip{message: message, reading: complete(p)}
		o.setTip(s, t)
	}
	return nil
}

func (o *Output) publish(ctx context.Context, subject string, s collector.Stream, expected uint64, p pack.Pack) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	ack, err := o.js.PublishMsg(ctx,
		&nats.Msg{Subject: subject, Header: header(s, p), Data: p.Body},
		jetstream.WithExpectLastSequencePerSubject(expected),
		// Another attempt by the client would not know whether the first one
		// arrived; ours does, because it reads Last first.
		jetstream.WithRetryAttempts(0))
	if err == nil {
		return ack.Sequence, nil
	}
	var refused *jetstream.APIError
	if errors.As(err, &refused) {
		switch refused.ErrorCode {
		case jetstream.JSErrCodeStreamWrongLastSequence, jetstream.JSErrCodeStreamWrongLastSequenceConstant:
			return 0, collector.ErrConflict
		}
	}
	return 0, err
}

// Close implements collector.Output. Calls that are under way fail.
func (o *Output) Close() error {
	if o.conn != nil {
		o.conn.Close()
	}
	if o.server != nil {
		o.server.close()
	}
	return nil
}
