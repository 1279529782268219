package collector

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sluice/reading"
	"sluice/uplink/wire"
)

var (
	errEpoch    = errors.New("the gateway came back with a new store: if another gateway has the same certificate, give each its own")
	errNewer    = errors.New("a newer process of the same gateway took over: if two gateways share a certificate, give each its own")
	errReplaced = errors.New("the session ended while a carrier joined")
)

// resumeTimeout bounds how long outputs may take to say what they hold; a
// gateway waits for its Welcome longer than this.
const resumeTimeout = 6 * time.Second

// session is one life of a gateway's store and the carriers that serve it.
type session struct {
	*Collector
	gateway  string
	epoch    uint64
	bytes    atomic.Int64  // received and not durable, of all streams
	lastSeen atomic.Int64  // nanoseconds since 1970
	joining  chan struct{} // holds a token while a carrier joins, so that outputs are asked once
	streams  [reading.Lanes]*stream

	mu     sync.Mutex // guards what follows
	id     wire.SessionID
	links  []*link
	latest *link // of links the one heard from last, nil if there are none
	ended  bool
}

func newSession(c *Collector, hello wire.Hello) *session {
	s := &session{Collector: c, gateway: hello.Gateway, epoch: hello.Epoch, joining: make(chan struct{}, 1)}
	for i := range s.streams {
		s.streams[i] = newStream(s, reading.Lane(i))
	}
	s.lastSeen.Store(time.Now().UnixNano())
	return s
}

// heard notes a sign of life on a carrier.
func (s *session) heard(l *link) {
	s.lastSeen.Store(time.Now().UnixNano())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.latest != l && slices.Contains(s.links, l) {
		s.latest = l
	}
}

// join takes a carrier in and says where each lane goes on. A carrier of a newer
// process of the gateway ends those of the older one.
func (s *session) join(ctx context.Context, l *link) ([reading.Lanes]wire.Resume, error) {
	var resume [reading.Lanes]wire.Resume
	ctx, cancel := context.WithTimeout(ctx, resumeTimeout)
	defer cancel()
	select {
	case s.joining <- struct{}{}:
		defer func() { <-s.joining }()
	case <-ctx.Done():
		return resume, ctx.Err()
	}
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return resume, errReplaced
	}
	newer := s.id != l.hello.Session
	var old []*link
	if newer {
		old, s.links = s.links, nil
		s.id = l.hello.Session
	}
	first := len(s.links) == 0
	s.links = append(s.links, l)
	s.latest = l
	s.mu.Unlock()
	for _, o := range old {
		o.end(wire.Close{Code: wire.CodeSuperseded, Reason: errNewer.Error()})
	}
	for i, st := range s.streams {
		r, err := st.resume(ctx, first, newer)
		if err != nil {
			s.leave(l)
			return resume, err
		}
		resume[i] = r
		st.start(l.service)
	}
	return resume, nil
}

func (s *session) has(l *link) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.links, l)
}

// leave takes a carrier out. What came on it stays while the session has others;
// after the last one, what is out of order is forgotten, for the gateway sends it
// again.
func (s *session) leave(l *link) {
	s.mu.Lock()
	s.links = slices.DeleteFunc(s.links, func(o *link) bool { return o == l })
	last := len(s.links) == 0
	switch {
	case last:
		s.latest = nil
	case s.latest == l:
		s.latest = s.links[len(s.links)-1]
	}
	s.mu.Unlock()
	if last {
		for _, st := range s.streams {
			st.forgetHeld()
		}
	}
}

// supersede ends all carriers and lets none join any more. Readings already
// received are still written.
func (s *session) supersede(reason error) {
	s.mu.Lock()
	links := s.links
	s.links, s.latest, s.ended = nil, nil, true
	s.mu.Unlock()
	for _, l := range links {
		l.end(wire.Close{Code: wire.CodeSuperseded, Reason: reason.Error()})
	}
}

// ack has a lane's state told to the gateway, on the carrier that was heard from
// last: the one that brought the readings may be dead without a trace.
func (s *session) ack(lane reading.Lane, ranges bool) {
	s.mu.Lock()
	l := s.latest
	s.mu.Unlock()
	if l != nil { // else the next Welcome tells
		l.ack(lane, ranges)
	}
}

// idle says that the session can be forgotten without loss.
func (s *session) idle() bool {
	s.mu.Lock()
	carriers := len(s.links)
	s.mu.Unlock()
	if carriers > 0 || len(s.joining) > 0 {
		return false
	}
	for _, st := range s.streams {
		if !st.idle() {
			return false
		}
	}
	return true
}
