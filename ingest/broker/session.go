package broker

import "sync"

// session is what MQTT has a server remember of a client's QoS 2 publishes
// between their PUBLISH and their PUBREL (MQTT 5.0, 4.1 and 4.3.3). It outlives
// the connection when the client keeps its session.
type session struct {
	mu sync.Mutex
	// seen are the identifiers that local subscribers have been served for,
	// held those among them whose readings are durable, so that PUBREC was or
	// may be sent. Nil until the client uses QoS 2.
	seen, held *identifiers
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
