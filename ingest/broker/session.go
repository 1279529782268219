package broker

import (
	"cmp"
	"slices"
	"sync"

	"github.com/mochi-mqtt/server/v2/packets"
)

// session is what MQTT has a server remember of a client (MQTT 5.0, 4.1), apart
// from what the library keeps: subscriptions, and messages for the client. It
// outlives the connection when the client keeps its session.
type session struct {
	mu sync.Mutex // guards what follows

	// The QoS 2 publishes of the client between their PUBLISH and their PUBREL:
	// seen are the identifiers that local subscribers have been served for,
	// held those among them whose readings are durable, so that PUBREC was or
	// may be sent. Nil until the client uses QoS 2.
	seen, held *identifiers

	// The messages for the client that it has not completed, by identifier: the
	// library keeps them without their order.
	owed map[uint16]owed
	next uint64
}

// owed is a message of QoS 1 or 2 on its way to the client.
type owed struct {
	order uint64
	sent  bool // at least once
}

// identifiers is a set of packet identifiers.
type identifiers [1 << 16 / 64]uint64

func (s *identifiers) has(id uint16) bool { return s[id/64]>>(id%64)&1 == 1 }
func (s *identifiers) add(id uint16)      { s[id/64] |= 1 << (id % 64) }
func (s *identifiers) remove(id uint16)   { s[id/64] &^= 1 << (id % 64) }

// begin notes a PUBLISH and reports what was known of its identifier before.
func (s *session) begin(id uint16) (seen, held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		s.seen, s.held = new(identifiers), new(identifiers)
	}
	seen, held = s.seen.has(id), s.held.has(id)
	s.seen.add(id)
	return seen, held
}

// hold notes that the publish is durable.
func (s *session) hold(id uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held.add(id)
}

// release forgets the identifier, at PUBREL or when the publish was refused,
// and reports whether it was held.
func (s *session) release(id uint16) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		return false
	}
	held := s.held.has(id)
	s.seen.remove(id)
	s.held.remove(id)
	return held
}

// owe notes a new message for the client.
func (s *session) owe(id uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owed == nil {
		s.owed = map[uint16]owed{}
	}
	s.next++
	s.owed[id] = owed{order: s.next}
}

// send notes that the message is about to be written.
func (s *session) send(id uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o, ok := s.owed[id]; ok {
		o.sent = true
		s.owed[id] = o
	}
}

// complete forgets the message.
func (s *session) complete(id uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.owed, id)
}

// arrange puts the packets that a returning client is owed into the order in
// which they were first to be sent, and marks those that are repetitions.
func (s *session) arrange(pks []packets.Packet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortFunc(pks, func(a, b packets.Packet) int {
		return cmp.Compare(s.owed[a.PacketID].order, s.owed[b.PacketID].order)
	})
	for i := range pks {
		if pks[i].FixedHeader.Type == packets.Publish {
			pks[i].FixedHeader.Dup = s.owed[pks[i].PacketID].sent
		}
	}
}
