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
	errCarriers = errors.New("the session has more carriers than a gateway can need, and this one was silent longest")
	errReplaced = errors.New("the session ended while a carrier joined")
)

// resumeTimeout bounds how long outputs may take to say what they hold; a
// gateway waits for its Welcome longer than this.
const resumeTimeout = 6 * time.Second

const (
	// carriersMost bounds the carriers of a session. A gateway has a handful; what
	// is above are those that died without a trace.
	carriersMost = 16
	// ackRepeat is how long a carrier that was told an Ack may be silent, while
	// others are heard from, until one of those is told as well.
	ackRepeat = 100 * time.Millisecond
)

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
	told   [reading.Lanes]told
	ended  bool
}

// told is the last Ack of a lane, as long as it may have gone nowhere.
type told struct {
	on *link // nil if the carrier was heard from since
	at time.Time
}

func newSession(c *Collector, hello wire.Hello) *session {
	s := &session{Collector: c, gateway: hello.Gateway, epoch: hello.Epoch, joining: make(chan struct{}, 1)}
	for i := range s.streams {
		s.streams[i] = newStream(s, reading.Lane(i))
	}
	s.lastSeen.Store(time.Now().UnixNano())
	return s
}

// heard notes a sign of life on a carrier. Those that show none, while this one
// does, died without a trace: what they were told last is told here, and after
// half the time that a single carrier would be given they are let go.
func (s *session) heard(l *link) {
	now := time.Now()
	s.lastSeen.Store(now.UnixNano())
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.links, l) {
		return
	}
	s.latest, l.heardAt = l, now
	for lane := range s.told {
		t := &s.told[lane]
		switch {
		case t.on == nil:
		case t.on.heardAt.After(t.at) || t.on == l:
			t.on = nil
		case now.Sub(t.at) >= ackRepeat:
			*t = told{on: l, at: now}
			l.ack(reading.Lane(lane), false)
		}
	}
	for _, o := range s.links {
		if now.Sub(o.heardAt) > o.idle/2 {
			o.carrier.SetReadDeadline(now)
		}
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
	if len(s.links) >= carriersMost {
		silent := slices.MinFunc(s.links, func(a, b *link) int { return a.heardAt.Compare(b.heardAt) })
		silent.end(wire.Close{Code: wire.CodeBusy, Reason: errCarriers.Error()})
	}
	s.links = append(s.links, l)
	s.latest, l.heardAt = l, time.Now()
	s.mu.Unlock()
	s.turnOut(old, errNewer)
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
	s.turnOut(links, reason)
}

// turnOut ends carriers that another process of the gateway supersedes.
func (s *session) turnOut(links []*link, reason error) {
	if len(links) == 0 {
		return
	}
	s.opt.Logger.Warn("gateway taken over from carriers that were open", "gateway", s.gateway,
		"from", links[0].carrier.RemoteAddr().String(), "carriers", len(links), "reason", reason)
	for _, l := range links {
		l.end(wire.Close{Code: wire.CodeSuperseded, Reason: reason.Error()})
	}
}

// ack has a lane's state told to the gateway, on the carrier that was heard from
// last: the one that brought the readings may be dead without a trace.
func (s *session) ack(lane reading.Lane, ranges bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.latest == nil {
		return // the next Welcome tells
	}
	s.told[lane] = told{on: s.latest, at: time.Now()}
	s.latest.ack(lane, ranges)
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
