package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"sluice/lab/topology"
)

// Record is one reading as a consumer of the output stream sees it.
type Record struct {
	Gateway, Lane, Epoch string
	Sequence             uint64
	Device, Name         string
	Kind                 Kind
	Value                string // the literal of a number, the text, base64 of bytes, "true"
	Time                 string // the literal of the seconds since 1970
}

// Oracle is an ordinary NATS client that reads the output stream from its
// start. It knows the stream's documentation and none of the product's code.
type Oracle struct {
	url  string
	from *topology.Host
	next uint64            // sequence in the stream to go on with
	last map[string]uint64 // last reading seen of each subject
}

// NewOracle returns an oracle of the stream at a NATS URL, dialled from a
// host (nil: the lab's own).
func NewOracle(url string, from *topology.Host) *Oracle {
	return &Oracle{url: url, from: from, next: 1, last: make(map[string]uint64)}
}

// pull is how many messages are asked for at once. They are half a megabyte
// each, and a server hangs up on a client that lets much more than that pile up.
const pull = 16

// streamName is where the collector puts its readings.
const streamName = "SLUICE"

// connection joins a NATS connection to its host.
type connection struct{ from *topology.Host }

// Dial implements nats.CustomDialer.
func (c connection) Dial(network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	return c.from.DialContext(ctx, network, address)
}

// open connects and finds the stream.
func (o *Oracle) open(ctx context.Context) (*nats.Conn, jetstream.Stream, error) {
	nc, err := nats.Connect(o.url, nats.SetCustomDialer(connection{o.from}), nats.NoReconnect())
	if err != nil {
		return nil, nil, fmt.Errorf("connect to output %s: %w", o.url, err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, nil, fmt.Errorf("connect to output %s: %w", o.url, err)
	}
	stream, err := js.Stream(ctx, streamName)
	if err != nil {
		nc.Close()
		return nil, nil, fmt.Errorf("find stream %s: %w", streamName, err)
	}
	return nc, stream, nil
}

// Advance reads what was added to the stream since the last call, in order. An
// error that is not about the connection is a broken promise of the stream.
func (o *Oracle) Advance(ctx context.Context, each func(Record)) error {
	nc, stream, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer nc.Close()
	info, err := stream.Info(ctx)
	if err != nil {
		return fmt.Errorf("read stream %s: %w", streamName, err)
	}
	end := info.State.LastSeq
	if o.next > end {
		return nil
	}
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: o.next,
	})
	if err != nil {
		return fmt.Errorf("read stream %s from %d: %w", streamName, o.next, err)
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(pull))
	if err != nil {
		return fmt.Errorf("read stream %s from %d: %w", streamName, o.next, err)
	}
	defer messages.Stop()
	for o.next <= end {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return fmt.Errorf("read stream %s at %d of %d: %w", streamName, o.next, end, err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return fmt.Errorf("read stream %s at %d: %w", streamName, o.next, err)
		}
		if err := o.take(m, each); err != nil {
			return fmt.Errorf("message %d of stream %s: %w", meta.Sequence.Stream, streamName, err)
		}
		o.next = meta.Sequence.Stream + 1
	}
	return nil
}

// take checks one message's place in its subject and hands out its readings.
func (o *Oracle) take(m jetstream.Msg, each func(Record)) error {
	parts := strings.Split(m.Subject(), ".")
	if len(parts) != 5 || parts[0] != "sluice" || parts[1] != "v1" {
		return fmt.Errorf("subject %q is not sluice.v1.<gateway>.<lane>.<epoch>", m.Subject())
	}
	first, err := sequence(m, "Sluice-First")
	if err != nil {
		return err
	}
	last, err := sequence(m, "Sluice-Last")
	if err != nil {
		return err
	}
	if before := o.last[m.Subject()]; first <= before || last < first {
		return fmt.Errorf("%s holds readings %d to %d after %d: not in order, or twice", m.Subject(), first, last, before)
	}
	o.last[m.Subject()] = last
	if reason := m.Headers().Get("Sluice-Unreadable"); reason != "" {
		return fmt.Errorf("%s: readings %d to %d were unreadable: %s", m.Subject(), first, last, reason)
	}
	r := Record{Gateway: parts[2], Lane: parts[3], Epoch: parts[4], Sequence: first}
	err = parsePack(m.Data(), func(p packRecord) {
		r.Device, r.Name, r.Kind, r.Value, r.Time = p.Device, p.Name, p.Kind, p.Value, p.Time
		each(r)
		r.Sequence++
	})
	if err != nil {
		return err
	}
	if r.Sequence != last+1 {
		return fmt.Errorf("%s: headers promise readings %d to %d, the pack holds %d", m.Subject(), first, last, r.Sequence-first)
	}
	return nil
}

func sequence(m jetstream.Msg, header string) (uint64, error) {
	n, err := strconv.ParseUint(m.Headers().Get(header), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: header %s: %w", m.Subject(), header, err)
	}
	return n, nil
}

// Await calls Advance until enough says so, through restarts of the collector.
// When ctx ends, the error is the last one there was.
func (o *Oracle) Await(ctx context.Context, each func(Record), enough func() bool) error {
	for {
		err := o.Advance(ctx, each)
		if err == nil && enough() {
			return nil
		}
		if !pause(ctx, 50*time.Millisecond) {
			return errors.Join(fmt.Errorf("wait for the output stream: %w", ctx.Err()), err)
		}
	}
}

// Counter follows the stream as it grows and counts readings by the headers
// alone.
type Counter struct {
	nc       *nats.Conn
	messages jetstream.MessagesContext
	seen     uint64
}

// Follow starts a counter at the present end of the stream. It counts the
// readings of one lane, or of all if lane is empty.
func (o *Oracle) Follow(ctx context.Context, lane string) (*Counter, error) {
	nc, stream, err := o.open(ctx)
	if err != nil {
		return nil, err
	}
	if lane == "" {
		lane = "*"
	}
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverNewPolicy, HeadersOnly: true,
		FilterSubjects: []string{"sluice.v1.*." + lane + ".*"},
	})
	if err == nil {
		var messages jetstream.MessagesContext
		if messages, err = consumer.Messages(); err == nil {
			return &Counter{nc: nc, messages: messages}, nil
		}
	}
	nc.Close()
	return nil, fmt.Errorf("follow stream %s: %w", streamName, err)
}

// Await returns when n readings have come since Follow.
func (c *Counter) Await(ctx context.Context, n uint64) error {
	for c.seen < n {
		m, err := c.messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return fmt.Errorf("follow stream %s at %d of %d readings: %w", streamName, c.seen, n, err)
		}
		first, err := sequence(m, "Sluice-First")
		if err != nil {
			return err
		}
		last, err := sequence(m, "Sluice-Last")
		if err != nil {
			return err
		}
		c.seen += last - first + 1
	}
	return nil
}

// Longest follows the stream until ctx ends and returns the longest time in which
// nothing came, and how many readings did.
func (c *Counter) Longest(ctx context.Context) (longest time.Duration, readings uint64, err error) {
	before, seen := time.Now(), c.seen
	for {
		err := c.Await(ctx, c.seen+1)
		longest = max(longest, time.Since(before))
		before = time.Now()
		switch {
		case ctx.Err() != nil:
			return longest, c.seen - seen, nil
		case err != nil:
			return longest, c.seen - seen, err
		}
	}
}

// Close ends the counter.
func (c *Counter) Close() {
	c.messages.Stop()
	c.nc.Close()
}
