package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"

	"sluice/ingest"
	"sluice/reading"
)

const (
	// willTimeout bounds how long a will may wait for a busy sink: nobody
	// would send it again.
	willTimeout = 5 * time.Second
)

// inbound is what OnPacketRead takes out of a PUBLISH for OnPublish.
type inbound struct {
	id  uint16
	qos byte
	dup bool
}

// acknowledgement is the packet type that answers the publish.
func (in inbound) acknowledgement() byte {
	if in.qos == 2 {
		return packets.Pubrec
	}
	return packets.Puback
}

// OnPacketRead takes what concerns the acknowledgement of publishes away from
// the library (see the package's comment).
func (h *hook) OnPacketRead(cl *mqtt.Client, pk packets.Packet) (packets.Packet, error) {
	c := connOf(cl)
	c.outbox.awaitRoom()
	switch pk.FixedHeader.Type {
	case packets.Publish:
		c.resolveAlias(&pk)
		c.in = inbound{id: pk.PacketID, qos: pk.FixedHeader.Qos, dup: pk.FixedHeader.Dup}
		if c.in.qos == 0 || c.in.id == 0 {
			return pk, nil // an identifier of 0 is the library's to refuse
		}
		pk.FixedHeader.Qos, pk.PacketID = 0, 0
		if !mqtt.IsValidFilter(pk.TopicName, true) && pk.TopicName != "" {
			// The library would drop it without an answer.
			h.broker.refuse(c, packets.ErrTopicNameInvalid, "publish to "+pk.TopicName)
			return nothing(), nil
		}
	case packets.Subscribe, packets.Unsubscribe:
		// The library would refuse one whose identifier a message to the client
		// happens to have.
		if c.request = pk.PacketID; c.request != 0 {
			pk.FixedHeader.Qos, pk.PacketID = 0, 0
		}
	case packets.Pubrel:
		code := packets.CodeSuccess
		if !c.session.release(pk.PacketID) {
			code = packets.ErrPacketIdentifierNotFound
		}
		c.window.complete(pk.PacketID, code)
		return nothing(), nil
	}
	return pk, nil
}

// nothing is a packet that the library passes over: the acknowledgement of an
// identifier that is never used.
func nothing() packets.Packet {
	return packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Puback}}
}

// resolveAlias gives the packet its topic (MQTT 5.0, 3.3.2.3.4). The library
// would do so only after it has asked for the right to publish to it. What is
// out of range, or set nowhere, is left for the library to refuse.
func (c *conn) resolveAlias(pk *packets.Packet) {
	p := &pk.Properties
	if !p.TopicAliasFlag || p.TopicAlias == 0 || p.TopicAlias > aliasMaximum {
		return
	}
	if c.aliases == nil {
		c.aliases = make([]string, aliasMaximum+1)
	}
	if pk.TopicName == "" {
		pk.TopicName = c.aliases[p.TopicAlias]
	} else {
		c.aliases[p.TopicAlias] = pk.TopicName
	}
	p.TopicAlias, p.TopicAliasFlag = 0, false
}

// OnPublish hands a publish that the client may make to the sink. What it
// returns makes the library deliver and retain it, but not acknowledge it.
func (h *hook) OnPublish(cl *mqtt.Client, pk packets.Packet) (packets.Packet, error) {
	b, c := h.broker, connOf(cl)
	in := c.in
	if pk.FixedHeader.Retain {
		pk.FixedHeader.Retain = b.retained.admit(pk.TopicName, len(pk.Payload))
	}
	if in.qos == 0 {
		b.ingestUnacknowledged(c, &pk)
		return pk, nil
	}
	if !b.ingest(c, in, &pk) {
		pk.Ignore = true
		return pk, nil
	}
	if !pk.FixedHeader.Retain && !c.heard(pk.TopicName) {
		pk.Ignore = true
		return pk, nil
	}
	// Subscribers are owed the publisher's QoS. The library does not
	// acknowledge what an inline client publishes, so the client is one until
	// OnPublished, which runs next on this same goroutine.
	pk.FixedHeader.Qos = in.qos
	cl.Net.Inline = true
	return pk, nil
}

// OnPublished ends what OnPublish began.
func (h *hook) OnPublished(cl *mqtt.Client, _ packets.Packet) {
	cl.Net.Inline = false
}

// ingest hands a QoS 1 or 2 publish to the sink and arranges its
// acknowledgement. It reports whether local subscribers are to get it.
func (b *Broker) ingest(c *conn, in inbound, pk *packets.Packet) bool {
	deliver, repeat := true, in.dup
	if in.qos == 2 {
		seen, held := c.session.begin(in.id)
		if held {
			// Stored and delivered; only PUBREC was lost (MQTT 5.0, 4.3.3).
			if s := c.window.open(in.id, packets.Pubrec); s != nil {
				s.settle(packets.CodeSuccess)
			}
			return false
		}
		if seen && c.window.waits(in.id) {
			return false
		}
		deliver, repeat = !seen, repeat || seen
	}

	batch, err := b.decode(pk)
	if err != nil {
		if cl := c.client; cl.Properties.ProtocolVersion == 5 {
			b.refuse(c, packets.Code{Code: packets.ErrPayloadFormatInvalid.Code, Reason: err.Error()}, pk.TopicName)
			return false
		}
		batch = b.unusable(pk, err)
	}
	s := c.window.open(in.id, in.acknowledgement())
	if s == nil {
		return false
	}
	b.counters.messages.Add(1)
	if len(batch.Readings) == 0 {
		s.settle(packets.CodeSuccess)
		return deliver
	}
	if batch.Receipt.Sender == "" { // a sink node's batch may have its own
		batch.Receipt = reading.Receipt{
			Sender: c.sender,
			ID:     receiptID(in.id, pk.TopicName, pk.Payload),
			Keep:   windowSize,
			Repeat: repeat,
		}
	}
	b.counters.readings.Add(uint64(len(batch.Readings)))
	if err := b.options.Sink.Append(c.order, batch, s.done); err != nil {
		s.report(err)
		return false
	}
	return deliver
}

// ingestUnacknowledged hands a QoS 0 publish to the sink. There is no way to
// refuse one, so what cannot be read is stored as it came.
func (b *Broker) ingestUnacknowledged(c *conn, pk *packets.Packet) {
	batch, err := b.decode(pk)
	if err != nil {
		batch = b.unusable(pk, err)
	}
	b.counters.messages.Add(1)
	b.append(c.ctx, batch, "publish with QoS 0 to "+pk.TopicName)
}

// append stores what nobody will send again, and counts it when that fails.
func (b *Broker) append(ctx context.Context, batch reading.Batch, what string) {
	if len(batch.Readings) == 0 {
		return
	}
	b.counters.readings.Add(uint64(len(batch.Readings)))
	dropped := func(err error) {
		if err != nil {
			b.counters.dropped.Add(1)
			b.log.Warn("mqtt message dropped", "what", what, "error", err)
		}
	}
	if err := b.options.Sink.Append(ctx, batch, dropped); err != nil {
		dropped(err)
	}
}

func (b *Broker) decode(pk *packets.Packet) (reading.Batch, error) {
	return b.options.Decoder.Decode(b.message(pk))
}

// unusable keeps a payload that cannot be read, from a sender who cannot be
// told, as one raw reading.
func (b *Broker) unusable(pk *packets.Packet, why error) reading.Batch {
	b.counters.unusable.Add(1)
	b.log.Warn("mqtt payload not readable, kept as a raw reading", "topic", pk.TopicName, "error", why)
	return b.options.Decoder.Raw(b.message(pk), "batch")
}

func (b *Broker) message(pk *packets.Packet) ingest.Message {
	return ingest.Message{Topic: pk.TopicName, Payload: pk.Payload, At: b.options.Now()}
}

// refuse answers the publish that c.in describes with a reason code of failure,
// in its turn. A client of MQTT 3.1.1 cannot be told; it is disconnected, since
// an acknowledgement would say that the publish is stored (MQTT 3.1.1, 3.3.5).
func (b *Broker) refuse(c *conn, code packets.Code, what string) {
	b.refused(c, code, errors.New(what))
	if c.in.qos == 0 {
		return
	}
	s := c.window.open(c.in.id, c.in.acknowledgement())
	if s != nil {
		s.settle(code)
	}
}

// refused counts and logs a refusal.
func (b *Broker) refused(c *conn, code packets.Code, why error) {
	if c.ctx.Err() != nil {
		return // its client was not refused: it is gone
	}
	b.counters.refuse(code.Code)
	b.log.Warn("mqtt publish refused", "client", c.client.ID,
		"code", fmt.Sprintf("%#02x", code.Code), "reason", code.Reason, "error", why)
}

// OnWill refuses wills that their client may not publish: the library asks for
// no right and accepts any topic.
func (h *hook) OnWill(cl *mqtt.Client, will mqtt.Will) (mqtt.Will, error) {
	b, c := h.broker, connOf(cl)
	if !mqtt.IsValidFilter(will.TopicName, true) || !c.rights.Load().mayPublish(will.TopicName) {
		b.counters.refuse(packets.ErrNotAuthorized.Code)
		b.log.Warn("mqtt will refused: no right to publish", "client", cl.ID, "topic", will.TopicName)
		cl.Properties.Will.WillDelayInterval = 0
		return mqtt.Will{}, nil // it matches nothing and is not retained
	}
	if will.Retain {
		will.Retain = b.retained.admit(will.TopicName, len(will.Payload))
	}
	return will, nil
}

// OnWillSent stores a will, which is as good as a reading of its client.
func (h *hook) OnWillSent(_ *mqtt.Client, pk packets.Packet) {
	if pk.TopicName == "" {
		return
	}
	b := h.broker
	batch, err := b.decode(&pk)
	if err != nil {
		batch = b.unusable(&pk, err)
	}
	b.counters.wills.Add(1)
	ctx, cancel := context.WithTimeout(context.Background(), willTimeout)
	defer cancel()
	b.append(ctx, batch, "will to "+pk.TopicName)
}

// endWill retains and stores a will that outlives its client's session.
func (h *hook) endWill(cl *mqtt.Client, w mqtt.Will) {
	pk := packets.Packet{
		FixedHeader: packets.FixedHeader{Type: packets.Publish, Qos: w.Qos, Retain: w.Retain},
		TopicName:   w.TopicName,
		Payload:     w.Payload,
		Properties:  packets.Properties{User: w.User},
		Origin:      cl.ID,
		Created:     time.Now().Unix(),
	}
	if w.Retain && h.broker.retained.admit(w.TopicName, len(w.Payload)) {
		h.OnRetainMessage(cl, pk, h.broker.server.Topics.RetainMessage(pk.Copy(false)))
	}
	h.OnWillSent(cl, pk)
}

// receiptID is the same for the same publish sent again, also after a restart:
// the FNV-1a hash, 64 bits, of identifier, topic and payload.
func receiptID(id uint16, topic string, payload []byte) uint64 {
	const prime = 1099511628211
	h := uint64(14695981039346656037)
	h = (h ^ uint64(id&0xff)) * prime
	h = (h ^ uint64(id>>8)) * prime
	for i := range len(topic) {
		h = (h ^ uint64(topic[i])) * prime
	}
	h *= prime // a zero byte, which no topic contains
	for _, c := range payload {
		h = (h ^ uint64(c)) * prime
	}
	return h
}
