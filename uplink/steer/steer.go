package steer

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"sluice/pathsel"
	"sluice/uplink"
	"sluice/uplink/probe"
)

const (
	tickMoving = 50 * time.Millisecond  // while data is in flight or something is in doubt
	tickIdle   = 250 * time.Millisecond // else; part of the time to notice a death at the first reading
)

// Planner is what steers need of an uplink.Sender. None of its methods blocks.
type Planner interface {
	Plan(slots []uplink.Slot)
	Abandon(slot string, why error)
	Ask(slot string)
	Stats() uplink.Stats
}

var _ Planner = (*uplink.Sender)(nil)

// Prober is a path's; *probe.Prober is one. None of its methods blocks.
type Prober interface {
	Pace(interval time.Duration)
	Stats() probe.Stats
}

// Association is an SCTP carrier.
type Association interface {
	uplink.Carrier
	// SetPrimary has data go to this address of the peer from now on. It does not
	// block.
	SetPrimary(remote netip.Addr) error
	// SetHeartbeat says how often a path that carries nothing is asked for a sign
	// of life. It does not block.
	SetHeartbeat(remote netip.Addr, every time.Duration) error
	// Readdress replaces an address of this end, and tells the peer. It does not
	// block.
	Readdress(from, to netip.Addr) error
}

// Path is an uplink of the gateway at one instant.
type Path struct {
	Name       string // "wlan0"
	Up         bool
	Reason     string // why it is not up
	Metered    bool
	Preference int // 0 first; among paths that are equally good
	// Prober measures the path; nil while it cannot be probed. Another one than
	// before has its own counters.
	Prober Prober
	// SCTP is how an association goes by this path. Without a valid Remote it
	// cannot, for now: no tunnel is up, say.
	SCTP PathAddress
}

// PathAddress is a pair of addresses that makes packets go by a path.
type PathAddress struct {
	Path   string
	Local  netip.Addr
	Remote netip.AddrPort
}

// Options configures a Steer. All fields without a note are required.
type Options struct {
	Profile pathsel.Profile
	Random  pathsel.Random

	// Paths returns the uplinks as they are now. It must not block.
	Paths func() []Path
	// Changed yields when Paths has changed; nil if nothing tells.
	Changed <-chan struct{}
	Sender  Planner

	// DialSCTP opens one association over all paths given, at least one, the best
	// first. Nil where SCTP cannot be had, and NoSCTP says why.
	DialSCTP func(ctx context.Context, addresses []PathAddress) (Association, error)
	NoSCTP   string
	// Underlay says what SCTP goes over, "tunnel" or "bare"; for the status.
	Underlay string
	// DialTCP opens a connection by a path to a collector; nil for SCTP alone.
	DialTCP func(ctx context.Context, path, collector string) (uplink.Carrier, error)
	// Collectors returns the collector's addresses by a path, in order of
	// preference, at least one: "collector.example.org:7443". TCP turns to the
	// next where one does not take the gateway; SCTP goes to the first.
	Collectors func(path string) []string
	Logger     *slog.Logger
}

// Steer decides which carriers the sender keeps and which path they take. What
// has no note belongs to the goroutine of Run.
type Steer struct {
	opt Options
	log *slog.Logger

	tracks     []*track // in the order of Paths
	lone       bool     // there is one path only
	unfit      string   // why SCTP is not for the current path, empty if it is
	losses     *pathsel.Losses
	probation  *pathsel.Probation
	hysteresis *pathsel.Hysteresis
	method     *pathsel.Method
	slowness   *pathsel.Slowness
	predictor  *pathsel.Predictor

	carriers []uplink.CarrierStats  // at this step
	before   map[string]uplink.Info // at the last step, by slot
	moving   bool                   // data was in flight at this step
	counts   pathsel.Counts         // on the current path, in this step
	full     load                   // what the current path delivers while it is full

	scheme   pathsel.Scheme    // wanted
	variants map[string]string // what each protocol is set up as, where it can be used
	changed  time.Time         // when scheme last did
	asked    question          // for another scheme; not answered yet
	stayed   pathsel.Scheme    // the scheme that the log was last told we stay with
	calm     calm              // since when TCP is not needed any more
	attempt  attempt           // at SCTP
	renewal  renewal           // of the association
	settled  map[string]primary
	gaveUp   map[string]time.Time // by slot

	turned   time.Time        // when the path last changed
	fled     time.Time        // and when it last did because the one before could not be used
	decision pathsel.Decision // about the path, the latest
	cause    string           // of the change of way that comes next
	way      way              // in effect
	begun    bool             // another than the first has been
	since    time.Time        // of way
	reason   string           // of way
	planned  string           // the last plan, in a form to compare

	mu        sync.Mutex              // guards what follows
	addresses []PathAddress           // that an association dialled now would get
	assocs    map[string]*association // by slot
	snapshot  Snapshot
	switches  []Switch // the latest, oldest first
}

// association is the latest of a slot.
type association struct {
	Association
	addresses []PathAddress // that it was dialled with
}

// New returns a Steer that does nothing until Run.
func New(opt Options) *Steer {
	p := opt.Profile
	s := &Steer{
		opt: opt, log: opt.Logger,
		losses:     pathsel.NewLosses(p.Window),
		probation:  pathsel.NewProbation(p.Probation),
		hysteresis: pathsel.NewHysteresis(p.Hysteresis, opt.Random),
		method:     pathsel.NewMethod(p.Slots),
		slowness:   pathsel.NewSlowness(p.Slow),
		predictor:  pathsel.NewPredictor(p.Toggle),
		before:     make(map[string]uplink.Info),
		settled:    make(map[string]primary),
		gaveUp:     make(map[string]time.Time),
		assocs:     make(map[string]*association),
		variants:   map[string]string{pathsel.TCP: "cubic"}, // until a carrier says otherwise
		renewal:    renewal{generation: 1},
	}
	s.scheme = pathsel.Scheme{Protocol: pathsel.SCTP, Variant: "tuned", Carriers: 1}
	if opt.DialSCTP == nil {
		s.scheme = pathsel.Scheme{Protocol: pathsel.TCP, Variant: "cubic", Carriers: 1}
	}
	return s
}

// Run steers until ctx ends. The slots stay as they were planned last. It must be
// called once.
func (s *Steer) Run(ctx context.Context) error {
	if s.opt.DialSCTP == nil {
		s.log.Info("SCTP cannot be used, TCP carries everything", "reason", s.opt.NoSCTP)
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.opt.Changed:
		case <-timer.C:
		}
		timer.Reset(s.step(time.Now()))
	}
}
