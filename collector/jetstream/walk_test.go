package jetstream

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"sluice/collector"
	"sluice/collector/pack"
	"sluice/reading"
)

// message is one message of the stream, or the joined parts of one body.
type message struct {
	Stream collector.Stream
	Pack   pack.Pack
}

// walk hands f every message that is in the stream of a cluster now, oldest
// first, as an ordinary client reads it; it returns f's first error.
func walk(ctx context.Context, cluster Cluster, stream string, f func(message) error) error {
	conn, err := cluster.connect(ctx)
	if err != nil {
		return fmt.Errorf("read stream %s: %w", stream, err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return fmt.Errorf("read stream %s: %w", stream, err)
	}
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return fmt.Errorf("read stream %s: %w", stream, err)
	}
	if s.CachedInfo().State.Msgs == 0 {
		return nil
	}
	consumer, err := s.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return fmt.Errorf("read stream %s: %w", stream, err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		return fmt.Errorf("read stream %s: %w", stream, err)
	}
	defer messages.Stop()
	parts := make(map[collector.Stream][]byte)
	for {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return fmt.Errorf("read stream %s: %w", stream, err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return fmt.Errorf("read stream %s: %w", stream, err)
		}
		decoded, err := decode(m)
		if err != nil {
			return fmt.Errorf("read stream %s: message %d: %w", stream, meta.Sequence.Stream, err)
		}
		if decoded.join(parts) {
			if err := f(decoded); err != nil {
				return err
			}
		}
		if meta.NumPending == 0 {
			return nil
		}
	}
}

// join gathers the parts of a body and reports whether m is now whole. A first
// part makes a fresh start: a writer that stopped in the middle begins again.
func (m *message) join(parts map[collector.Stream][]byte) bool {
	p := &m.Pack
	if p.Parts == 1 {
		return true
	}
	if p.Part == 1 {
		parts[m.Stream] = nil
	}
	parts[m.Stream] = append(parts[m.Stream], p.Body...)
	if p.Part < p.Parts {
		return false
	}
	p.Body, p.Part, p.Parts = parts[m.Stream], 1, 1
	delete(parts, m.Stream)
	return true
}

// parseSubject is the inverse of Subject.
func parseSubject(subject string) (collector.Stream, error) {
	rest, ok := strings.CutPrefix(subject, prefix+".")
	parts := strings.Split(rest, ".")
	if !ok || len(parts) != 3 {
		return collector.Stream{}, fmt.Errorf("subject %q: want %s.<gateway>.<lane>.<epoch>", subject, prefix)
	}
	gateway, err := url.PathUnescape(parts[0])
	if err != nil {
		return collector.Stream{}, fmt.Errorf("subject %q: %w", subject, err)
	}
	lane, err := parseLane(parts[1])
	if err != nil {
		return collector.Stream{}, fmt.Errorf("subject %q: %w", subject, err)
	}
	epoch, err := strconv.ParseUint(parts[2], 16, 64)
	if err != nil {
		return collector.Stream{}, fmt.Errorf("subject %q: epoch: %w", subject, err)
	}
	return collector.Stream{Gateway: gateway, Epoch: epoch, Lane: lane}, nil
}

func parseLane(name string) (reading.Lane, error) {
	for l := range reading.Lane(reading.Lanes) {
		if l.String() == name {
			return l, nil
		}
	}
	return 0, fmt.Errorf("lane %q: want alarm, live or backfill", name)
}

func decode(m jetstream.Msg) (message, error) {
	s, err := parseSubject(m.Subject())
	if err != nil {
		return message{}, err
	}
	h := m.Headers()
	p := pack.Pack{Body: m.Data(), Part: 1, Parts: 1, Reason: h.Get(HeaderUnreadable)}
	_, p.Unreadable = h[HeaderUnreadable]
	if p.First, err = strconv.ParseUint(h.Get(HeaderFirst), 10, 64); err != nil {
		return message{}, fmt.Errorf("header %s: %w", HeaderFirst, err)
	}
	if p.Last, err = strconv.ParseUint(h.Get(HeaderLast), 10, 64); err != nil {
		return message{}, fmt.Errorf("header %s: %w", HeaderLast, err)
	}
	if part := h.Get(HeaderPart); part != "" {
		number, of, _ := strings.Cut(part, "/")
		var errNumber, errOf error
		p.Part, errNumber = strconv.Atoi(number)
		p.Parts, errOf = strconv.Atoi(of)
		if err := errors.Join(errNumber, errOf); err != nil || p.Part < 1 || p.Part > p.Parts {
			return message{}, fmt.Errorf("header %s: %q is not a part of parts", HeaderPart, part)
		}
	}
	return message{Stream: s, Pack: p}, nil
}
