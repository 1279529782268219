package mqtt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	paho "github.com/eclipse/paho.mqtt.golang"
	"golang.org/x/sync/semaphore"

	"sluice/ingest"
	"sluice/reading"
)

const (
	// queueBytes bounds the payloads that wait for the sink, and with the least
	// charge of each also their number.
	queueBytes  = 4 << 20
	leastCharge = 1 << 10
	// patience is how long the reader waits for room. It must be less than
	// pingTimeout: while it waits, the broker's ping response is not read.
	patience = 5 * time.Second
	// drain is how long an ending session may take to hand over what it has.
	drain = 3 * time.Second
	// farewell is how long a DISCONNECT may take to be written.
	farewell = 250 * time.Millisecond
	// keep is how many of a broker's last messages the sink remembers: more
	// than a broker sends before it waits for acknowledgements, because so many
	// it may send again (mosquitto 20, EMQX 32, NATS 1024).
	keep = 1024
)

// errBusy ends a session whose broker sends faster than the sink takes.
var errBusy = errors.New("sink takes nothing: the broker keeps its messages until the next session")

// session is the time between a CONNECT and the end of its connection.
type session struct {
	c     *Client
	over  chan error // holds the first reason to end
	acker *acker
	room  *semaphore.Weighted
	queue chan item

	// work ends when nothing more is to be appended.
	work context.Context
	stop context.CancelFunc
	// order ends with work, or with the reason once the sink has refused: what is
	// queued is then the broker's again, and must not overtake.
	order    context.Context
	endOrder context.CancelCauseFunc
	pumped   chan struct{} // closed when pump has returned

	stalled bool // only the reader's: its last wait for room was in vain

	mu     sync.Mutex // guards what follows and sending into queue
	closed bool       // queue takes nothing more

	messages, repeated, retained, dropped, refusals, unusable atomic.Uint64
}

// item is a message on its way to the sink.
type item struct {
	message  paho.Message
	at       reading.Time
	charge   int64
	delivery *delivery // nil for QoS 0
}

// newSession starts what takes and acknowledges messages.
func (c *Client) newSession(ctx context.Context) *session {
	s := &session{c: c, over: make(chan error, 1), pumped: make(chan struct{}),
		room: semaphore.NewWeighted(queueBytes), queue: make(chan item, queueBytes/leastCharge)}
	s.acker = newAcker(s.refuse)
	s.work, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.order, s.endOrder = context.WithCancelCause(s.work)
	go s.acker.run()
	go s.pump()
	c.begins(s)
	return s
}

// runSession connects, subscribes and takes messages until ctx ends or
// something breaks; it returns what broke.
func (c *Client) runSession(ctx context.Context) error {
	s := c.newSession(ctx)
	life, die := context.WithCancel(context.WithoutCancel(ctx))
	defer die() // closes the connection if nothing else has
	library := c.library(life, s)
	err := c.connect(ctx, library, s)
	if err == nil {
		select {
		case err = <-s.over:
		case <-ctx.Done():
		}
	}
	s.finish(ctx.Err() != nil)
	library.Disconnect(uint(farewell.Milliseconds()))
	return err
}

// connect opens the session and restores its subscriptions, whether the broker
// still has them or not.
func (c *Client) connect(ctx context.Context, library paho.Client, s *session) error {
	token := library.Connect()
	select {
	case <-token.Done():
	case <-ctx.Done():
		return nil
	}
	if err := token.Error(); err != nil {
		return fmt.Errorf("connection to %s: %w", c.address, err)
	}
	file := topicsFile(c.o.TopicsFile)
	former, err := file.read()
	c.warn(err)
	both := slices.Concat(former, c.o.Topics)
	c.warn(file.write(both, former))
	filters := make(map[string]byte, len(c.o.Topics))
	for _, topic := range c.o.Topics {
		filters[topic] = c.o.QoS
	}
	sub := library.SubscribeMultiple(filters, nil)
	if err := c.answer(ctx, s, sub, "subscription"); err != nil || ctx.Err() != nil {
		return err
	}
	given := slices.DeleteFunc(former, func(t string) bool { return slices.Contains(c.o.Topics, t) })
	if len(given) > 0 {
		if err := c.answer(ctx, s, library.Unsubscribe(given...), "end of subscriptions"); err != nil || ctx.Err() != nil {
			return err
		}
		c.warn(file.write(c.o.Topics, both))
		c.log.Info("mqtt topics given up", "topics", given)
	}
	c.connected()
	for topic, code := range sub.(*paho.SubscribeToken).Result() {
		if code > 2 {
			c.refusedTopic(topic)
		}
	}
	c.log.Info("mqtt session open", "address", c.address, "topics", c.o.Topics)
	return nil
}

// answer waits for the broker's answer to a request; nil if ctx ends before.
func (c *Client) answer(ctx context.Context, s *session, request paho.Token, what string) error {
	timer := time.NewTimer(connectTimeout)
	defer timer.Stop()
	select {
	case <-request.Done():
	case err := <-s.over:
		return err
	case <-timer.C:
		return fmt.Errorf("%s at %s: no answer within %v", what, c.address, connectTimeout)
	case <-ctx.Done():
		return nil
	}
	if err := request.Error(); err != nil {
		return fmt.Errorf("%s at %s: %w", what, c.address, err)
	}
	return nil
}

// warn logs what does not keep the session from its work.
func (c *Client) warn(err error) {
	if err != nil {
		c.log.Warn("topics that are not configured any more may still be sent by the broker", "error", err)
	}
}

// end notes the first reason why the session is over.
func (s *session) end(err error) {
	select {
	case s.over <- err:
	default:
	}
}

// refuse ends the session because the sink did not take a message: the broker
// keeps it and all that follow.
func (s *session) refuse(err error) {
	s.refusals.Add(1)
	s.endOrder(err)
	s.end(err)
}

// receive queues a message. The library calls it from one goroutine, in the
// broker's order, and reads nothing more until it returns.
func (s *session) receive(m paho.Message) {
	s.messages.Add(1)
	if m.Duplicate() {
		s.repeated.Add(1)
	}
	if m.Retained() {
		s.retained.Add(1)
	}
	it := item{message: m, at: s.c.o.Now(), charge: charge(m)}
	if !s.wait(it.charge) {
		if m.Qos() == 0 {
			s.dropped.Add(1)
		} else {
			s.endOrder(errBusy) // what follows must not overtake it
			s.end(errBusy)
		}
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.order.Err() != nil {
		if m.Qos() == 0 {
			s.dropped.Add(1)
		}
		s.room.Release(it.charge)
		return
	}
	if m.Qos() > 0 {
		it.delivery = s.acker.expect(m)
	}
	s.queue <- it // has room: every item is charged leastCharge at least
}

// charge is what a message counts against queueBytes.
func charge(m paho.Message) int64 {
	return min(max(int64(len(m.Payload())+len(m.Topic())), leastCharge), queueBytes)
}

// wait waits for room, with patience only if the last wait was not in vain.
func (s *session) wait(n int64) bool {
	if s.room.TryAcquire(n) {
		s.stalled = false
		return true
	}
	if s.stalled {
		return false
	}
	ctx, cancel := context.WithTimeout(s.work, patience)
	defer cancel()
	s.stalled = s.room.Acquire(ctx, n) != nil
	return !s.stalled
}

// pump hands queued messages to the sink in order.
func (s *session) pump() {
	defer close(s.pumped)
	for it := range s.queue {
		if s.order.Err() != nil {
			if it.delivery == nil {
				s.dropped.Add(1)
			}
		} else {
			s.take(it)
		}
		s.room.Release(it.charge)
	}
}

// take decodes one message and appends it.
func (s *session) take(it item) {
	m := ingest.Message{Topic: it.message.Topic(), Payload: it.message.Payload(),
		Retained: it.message.Retained(), At: it.at}
	b, err := s.c.o.Decoder.Decode(m)
	if err != nil {
		// MQTT 3.1.1 has no way to tell the sender, and unacknowledged the
		// message would come back for ever: it is kept as it came.
		s.unusable.Add(1)
		b = s.c.o.Decoder.Raw(m, "batch")
	}
	ctx, done := s.work, s.doneQoS0
	if it.delivery != nil {
		ctx, done = s.order, it.delivery.done
	}
	if len(b.Readings) == 0 {
		done(nil)
		return
	}
	if b.Receipt.Sender == "" {
		b.Receipt = s.receipt(it)
	}
	if err := s.c.o.Sink.Append(ctx, b, done); err != nil {
		if it.delivery == nil {
			s.dropped.Add(1)
		}
		s.refuse(err)
	}
}

// doneQoS0 is told by the sink how a message fared that the broker forgot.
func (s *session) doneQoS0(err error) {
	if err != nil {
		s.dropped.Add(1)
	}
}

// receipt identifies a message to the sink. A retained message comes again with
// every subscription; only its topic's last payload is of interest.
func (s *session) receipt(it item) reading.Receipt {
	m := it.message
	switch {
	case m.Retained():
		return reading.Receipt{Sender: "retained:" + s.c.o.Name + ":" + m.Topic(),
			ID: hash(0, "", m.Payload()), Keep: 1, Repeat: true}
	case m.Qos() == 0:
		return reading.Receipt{}
	}
	return reading.Receipt{Sender: "mqtt:" + s.c.o.Name,
		ID: hash(m.MessageID(), m.Topic(), m.Payload()), Keep: keep, Repeat: m.Duplicate()}
}

// hash is 64-bit FNV-1a of a packet identifier, a topic and a payload: the same
// after a restart, unlike hash/maphash.
func hash(id uint16, topic string, payload []byte) uint64 {
	const offset, prime = 0xcbf29ce484222325, 0x100000001b3
	h := (uint64(offset) ^ uint64(id>>8)) * prime
	h = (h ^ uint64(id&0xff)) * prime
	for i := range len(topic) {
		h = (h ^ uint64(topic[i])) * prime
	}
	h *= prime // a zero byte: topics have none
	for _, b := range payload {
		h = (h ^ uint64(b)) * prime
	}
	return h
}

// finish takes nothing more and hands over what was received; gracefully, it
// also waits for that to become durable, to acknowledge it.
func (s *session) finish(gracefully bool) {
	s.mu.Lock()
	s.closed = true
	close(s.queue)
	s.mu.Unlock()
	timer := time.NewTimer(drain)
	defer timer.Stop()
	expired := false
	if s.order.Err() != nil {
		s.stop() // what is queued is the broker's again
	}
	select {
	case <-s.pumped:
	case <-timer.C:
		expired = true
	}
	if gracefully && !expired && s.order.Err() == nil {
		select {
		case <-s.acker.whenEmpty():
		case <-timer.C:
		}
	}
	s.stop()
	<-s.pumped
	s.acker.end()
}

// addTo adds the session's counts.
func (s *session) addTo(st *Stats) {
	outstanding, acked := s.acker.counts()
	st.Messages += s.messages.Load()
	st.Repeated += s.repeated.Load()
	st.Retained += s.retained.Load()
	st.Acked += acked
	st.Dropped += s.dropped.Load()
	st.Refused += s.refusals.Load()
	st.Unusable += s.unusable.Load()
	st.Waiting = outstanding
}
