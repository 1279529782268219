package broker

import (
	"cmp"
	"maps"
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

	// The messages of QoS 1 and 2 for the client that it has not completed, by
	// identifier: the library keeps them without their order.
	owed    map[uint16]owed
	waiting allowance // of owed
	next    uint64
	// connection counts the connections of the session.
	connection uint64
	// late are messages that the library gave to a connection which had lost
	// the session to its successor in the same instant.
	late  []packets.Packet
	ended bool // nobody will come for anything
}

// owed is a message on its way to the client.
type owed struct {
	order uint64
	size  int
	sent  uint64 // on which connection last; 0: never
}

func newSession(b *Broker) *session {
	return &session{waiting: allowance{all: &b.waiting}, connection: 1}
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

// owe notes a new message for the client. It returns false if there is no room
// for it.
func (s *session) owe(id uint16, size int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(id)
	if s.ended || !s.waiting.take(size) {
		return false
	}
	if s.owed == nil {
		s.owed = map[uint16]owed{}
	}
	s.next++
	s.owed[id] = owed{order: s.next, size: size}
	return true
}

// send notes that a message is about to be written. It returns whether it was
// written on an earlier connection; it must not be if it was on this one, or is
// not owed.
func (s *session) send(id uint16) (again, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.owed[id]
	if !ok || o.sent == s.connection {
		return false, false
	}
	again = o.sent != 0
	o.sent = s.connection
	s.owed[id] = o
	return again, true
}

// complete forgets a message and returns whether it was sent on the present
// connection.
func (s *session) complete(id uint16) (sent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.forget(id)
}

// forget is complete for a caller that holds s.mu.
func (s *session) forget(id uint16) (sent bool) {
	o, ok := s.owed[id]
	if !ok {
		return false
	}
	s.waiting.give(o.size)
	delete(s.owed, id)
	return o.sent == s.connection
}

// resume begins the next connection and returns the messages that wait for it,
// in the order in which they were first to be sent.
func (s *session) resume() []uint16 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connection++
	return slices.SortedFunc(maps.Keys(s.owed), func(a, b uint16) int {
		return cmp.Compare(s.owed[a].order, s.owed[b].order)
	})
}

// waits returns the identifiers of all messages for the client.
func (s *session) waits() []uint16 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.owed))
}

// missed keeps a message for the successor of its connection.
func (s *session) missed(pk packets.Packet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.late = append(s.late, pk)
	}
}

// takeMissed returns what missed has kept, once.
func (s *session) takeMissed() []packets.Packet {
	s.mu.Lock()
	defer s.mu.Unlock()
	late := s.late
	s.late = nil
	return late
}

// end forgets all messages: nobody will come for them.
func (s *session) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owed, s.late, s.ended = nil, nil, true
	s.waiting.clear()
}
