package broker

import (
	"sync/atomic"

	"github.com/mochi-mqtt/server/v2/packets"
)

// Stats are counts since the broker was made, and a few present values.
type Stats struct {
	Clients       int64 // connected now
	Sessions      int   // known, connected or away
	Retained      int   // messages retained now
	RetainedBytes int   // their topics and payloads

	Messages uint64 // taken in, of any QoS, wills excepted
	Readings uint64 // handed to the sink, wills included
	Wills    uint64

	// Refused are publishes that their senders still have, by reason: "full"
	// (or busy), "rights", "topic", "payload", "size", "error".
	Refused map[string]uint64
	// Dropped are QoS 0 messages and wills that the sink did not take.
	Dropped uint64
	// Unusable are payloads kept as raw readings because their sender could
	// not be told that they cannot be read.
	Unusable uint64
	// Undelivered are messages that a local subscriber did not get: too many
	// waited, or this one was too old, too large, or no longer its to read.
	Undelivered uint64
	// Unretained are messages that were not retained because of the limits.
	Unretained uint64
	// Strangers are connections refused: wrong password, too many.
	Strangers uint64
	// Forgotten are sessions ended because their clients were away too long or
	// too many clients were.
	Forgotten uint64
}

type counters struct {
	messages, readings, wills, dropped, unusable, undelivered, strangers, forgotten atomic.Uint64

	full, rights, topic, payload, size, other atomic.Uint64
}

// refuse counts a publish answered with the MQTT reason code.
func (c *counters) refuse(code byte) {
	switch code {
	case packets.ErrQuotaExceeded.Code:
		c.full.Add(1)
	case packets.ErrNotAuthorized.Code:
		c.rights.Add(1)
	case packets.ErrTopicNameInvalid.Code:
		c.topic.Add(1)
	case packets.ErrPayloadFormatInvalid.Code:
		c.payload.Add(1)
	case packets.ErrPacketTooLarge.Code:
		c.size.Add(1)
	default:
		c.other.Add(1)
	}
}

// Stats returns the present counts.
func (b *Broker) Stats() Stats {
	c := &b.counters
	n, bytes, unretained := b.retained.stats()
	return Stats{
		Clients:       atomic.LoadInt64(&b.server.Info.ClientsConnected),
		Sessions:      b.server.Clients.Len(),
		Retained:      n,
		RetainedBytes: bytes,
		Messages:      c.messages.Load(),
		Readings:      c.readings.Load(),
		Wills:         c.wills.Load(),
		Refused: map[string]uint64{
			"full":    c.full.Load(),
			"rights":  c.rights.Load(),
			"topic":   c.topic.Load(),
			"payload": c.payload.Load(),
			"size":    c.size.Load(),
			"error":   c.other.Load(),
		},
		Dropped:     c.dropped.Load(),
		Unusable:    c.unusable.Load(),
		Undelivered: c.undelivered.Load(),
		Unretained:  unretained,
		Strangers:   c.strangers.Load(),
		Forgotten:   c.forgotten.Load(),
	}
}
