package uplink

import (
	"context"
	"crypto/rand"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sluice/reading"
	"sluice/uplink/wire"
)

// drainTimeout is how long an end waits for what is in flight.
const drainTimeout = 2 * time.Second

// Options configures a Sender. All fields without a note are required.
type Options struct {
	Gateway string // the name in the gateway's certificate
	Queue   Queue
	// Slots are the carriers to keep until the first Plan.
	Slots []Slot

	Flush      time.Duration // how long a live reading may wait for others to share a frame; 0 for not at all
	MaxFrame   int           // bytes of one frame, at least 4096; large frames compress better, an alarm waits for one at most
	Keepalive  time.Duration // silence after which the collector is asked for a sign of life
	AckTimeout time.Duration // without progress for so long a carrier is given up

	// Correct fixes the times of unsynchronised readings in place, as far as it
	// can, and says whether it changed any. Nil leaves them.
	Correct func([]reading.Reading) bool
	Logger  *slog.Logger
}

// Sender keeps a session with one collector at a time, over one carrier or
// several, and sends it what the queue holds.
type Sender struct {
	opt     Options
	session wire.SessionID
	ordered chan struct{} // holds a value while Plan or Abandon were not heeded, nor Ask

	started       time.Time    // what deliversUntil counts from, so that no step of the clock moves it
	deliversUntil atomic.Int64 // nanoseconds

	mu        sync.Mutex // guards what follows
	stats     Stats
	carriers  []carrierView
	plan      []Slot           // nil when it was heeded
	abandoned map[string]error // by slot
	asked     []string         // slots
}

// New returns a Sender that does nothing until Run.
func New(opt Options) *Sender {
	s := &Sender{opt: opt, started: time.Now(), ordered: make(chan struct{}, 1), abandoned: make(map[string]error)}
	rand.Read(s.session[:])
	s.stats.State, s.stats.Since = Stopped, s.started
	s.Plan(opt.Slots)
	return s
}

// Run sends until ctx ends, then waits up to two seconds for what is in flight
// to be acknowledged. It never gives up: no error of a collector ends it. It
// must be called once.
func (s *Sender) Run(ctx context.Context) error {
	newSession(s).run(ctx)
	s.setState(time.Now(), Stopped, "shut down")
	return nil
}

// Plan says which carriers to keep from now on, in order of preference. It may
// be called at any time and returns at once. A slot that was there before goes on
// with its carrier and follows the new Standby and Dialers; a new one is dialled
// at once. The carrier of one that is not planned any more gets no more readings,
// has up to two seconds to have those in flight acknowledged, and is closed; what
// is not acknowledged by then goes again on the others. Slots without a dialer,
// and second ones of a name, are left out.
func (s *Sender) Plan(slots []Slot) {
	plan := make([]Slot, 0, len(slots))
	for _, p := range slots {
		if len(p.Dialers) == 0 || slices.ContainsFunc(plan, func(o Slot) bool { return o.Name == p.Name }) {
			s.opt.Logger.Error("slot left out: it needs a dialer, and a name of its own", "slot", p.Name)
			continue
		}
		plan = append(plan, p)
	}
	s.order(func() { s.plan = plan })
}

// Abandon gives up the carrier of a slot at once, if it has one: what it has in
// flight goes again on the others. The slot is then dialled as after any loss.
func (s *Sender) Abandon(slot string, why error) {
	s.order(func() { s.abandoned[slot] = why })
}

// Ask has the carrier of a slot show whether it lives: a Ping goes out as soon as
// possible, unless one is out already. Stats say when something was heard.
func (s *Sender) Ask(slot string) {
	s.order(func() { s.asked = append(s.asked, slot) })
}

// order leaves something for the session to heed.
func (s *Sender) order(f func()) {
	s.mu.Lock()
	f()
	s.mu.Unlock()
	select {
	case s.ordered <- struct{}{}:
	default:
	}
}
