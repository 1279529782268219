package probe

import "time"

const (
	remembered     = 256 // probes; a power of two up to 256, so that a place fits into a byte
	timeoutAtFirst = time.Second
	timeoutLeast   = 100 * time.Millisecond
	timeoutMost    = 10 * time.Second
)

// ledger keeps account of the probes sent and heard. It is told the time, and
// never asks for it. The zero value is ready.
type ledger struct {
	stats    Stats
	entries  [remembered]entry
	answered uint64 // the number of the latest probe that was answered
}

// entry is one probe, by its number modulo the ledger's length.
type entry struct {
	state    state
	identity uint64
	number   uint64 // from 1
	sent     time.Time
	timeout  time.Duration
}

// state is what became of a probe.
type state byte

const (
	unused   state = iota
	waiting        // for its answer
	lost           // timed out; an answer is still welcome
	answered       // a second answer is a copy
)

// send enters a probe and returns its identity. What is forgotten to make room
// for it is lost.
func (l *ledger) send(now time.Time, random uint64) (identity uint64) {
	l.expire(now)
	l.stats.Sent++
	place := l.stats.Sent % remembered
	e := &l.entries[place]
	if e.state == waiting {
		l.lose(e)
	}
	*e = entry{state: waiting, identity: random&^(remembered-1) | place, number: l.stats.Sent, sent: now, timeout: l.timeout()}
	return e.identity
}

// hear takes an answer, and says whether it is one: of a probe that is
// remembered, and the first.
func (l *ledger) hear(now time.Time, identity uint64) bool {
	l.expire(now)
	e := &l.entries[identity%remembered]
	if e.state != waiting && e.state != lost || e.identity != identity {
		return false
	}
	e.state = answered
	l.stats.Answered++
	l.stats.Last = now
	l.stats.Unanswered = 0
	l.answered = max(l.answered, e.number)
	l.measure(now.Sub(e.sent))
	return true
}

// expire counts the probes that have timed out.
func (l *ledger) expire(now time.Time) {
	for i := range l.entries {
		if e := &l.entries[i]; e.state == waiting && now.Sub(e.sent) >= e.timeout {
			l.lose(e)
		}
	}
}

func (l *ledger) lose(e *entry) {
	e.state = lost
	l.stats.Lost++
	if e.number > l.answered { // else the path has answered a later one
		l.stats.Unanswered++
	}
}

// measure smooths the round trip as RFC 6298, section 2, does. Answers that came
// after their timeout count too: without them a path that has become slower would
// be taken for lossy for ever.
func (l *ledger) measure(rtt time.Duration) {
	s := &l.stats
	s.Latest = rtt
	if s.Answered == 1 {
		s.RTT, s.RTTVar = rtt, rtt/2
		return
	}
	s.RTTVar += ((s.RTT - rtt).Abs() - s.RTTVar) / 4
	s.RTT += (rtt - s.RTT) / 8
}

// timeout is how long a probe sent now may take.
func (l *ledger) timeout() time.Duration {
	if l.stats.Answered == 0 {
		return timeoutAtFirst
	}
	return min(max(l.stats.RTT+4*l.stats.RTTVar, timeoutLeast), timeoutMost)
}
