package steer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sluice/pathsel"
	"sluice/uplink"
	"sluice/uplink/probe"
)

// radio is a path of the world, as it really is.
type radio struct {
	name     string
	up       bool
	dead     bool // associated, and nothing passes
	loss     float64
	rtt      time.Duration
	queue    time.Duration // what stands in it while data flows
	rate     float64       // bytes a second
	metered  bool
	noUDP    bool // drops probes, and the tunnel
	noSCTP   bool
	address  int // of the association's, changes when renumbered
	probes   *prober
	untunnel bool // no tunnel yet
}

// world is a gateway's surroundings: paths, probers, and a sender that is a model
// of uplink.Sender: it dials slots, shares the load among active carriers or, if
// there are none, the standbys, and keeps what is in flight until it is
// acknowledged or abandoned.
type world struct {
	t       *testing.T
	steer   *Steer
	changed chan struct{}

	mu        sync.Mutex // guards what follows
	r         *rand.Rand
	radios    []*radio
	slots     []*slot
	load      bool
	carried   map[string]float64 // bytes, by path and protocol: "sctp wlan0"
	lastTime  time.Time          // of a delivery, or of load being off
	longest   time.Duration      // without delivery under load
	abandoned []string
	noSCTP    bool // the collector's side drops it
	rigid     bool // the collector takes no changes of addresses
	plans     int
}

type slot struct {
	uplink.Slot
	cancel  context.CancelFunc
	carrier *carrier
	state   uplink.CarrierState
	reason  string
	since   time.Time
	gone    chan struct{} // closed when the carrier is lost
}

type carrier struct {
	uplink.Carrier // none of the methods that the steer does not use
	w              *world
	kind           string
	path           string // of tcp
	addresses      []PathAddress
	primary        netip.Addr
	heartbeats     map[netip.Addr]time.Duration
	info           uplink.Info
	inFlight       int
	oldest         time.Time
	heard          time.Time
	rtt            time.Duration // of an association, as last measured
}

// SetPrimary implements Association.
func (c *carrier) SetPrimary(remote netip.Addr) error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if !slices.ContainsFunc(c.addresses, func(a PathAddress) bool { return a.Remote.Addr() == remote }) {
		return errors.New("no such address")
	}
	c.primary = remote
	return nil
}

// SetHeartbeat implements Association.
func (c *carrier) SetHeartbeat(remote netip.Addr, every time.Duration) error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if c.heartbeats == nil {
		c.heartbeats = make(map[netip.Addr]time.Duration)
	}
	c.heartbeats[remote] = every
	return nil
}

// Readdress implements Association.
func (c *carrier) Readdress(from, to netip.Addr) error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	i := slices.IndexFunc(c.addresses, func(a PathAddress) bool { return a.Local == from })
	if i < 0 || c.w.rigid {
		return errors.New("the peer takes no changes of addresses")
	}
	c.addresses[i].Local = to
	return nil
}

func (w *world) radio(name string) *radio {
	i := slices.IndexFunc(w.radios, func(r *radio) bool { return r.name == name })
	return w.radios[i]
}

// set changes the world.
func (w *world) set(f func()) {
	w.mu.Lock()
	f()
	w.mu.Unlock()
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

func (r *radio) number() int { return int(r.name[len(r.name)-1] - '0') }

func (r *radio) remote() netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 213, byte(r.number()), 1}), 7443)
}

func (r *radio) local() netip.Addr {
	return netip.AddrFrom4([4]byte{10, 213, byte(r.number()), byte(10 + r.address)})
}

func (w *world) paths() (out []Path) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, r := range w.radios {
		p := Path{Name: r.name, Up: r.up, Metered: r.metered, Preference: i, Prober: r.probes}
		if !r.up {
			p.Reason = "no carrier"
		}
		if !r.untunnel {
			p.SCTP = PathAddress{Path: r.name, Local: r.local(), Remote: r.remote()}
		}
		out = append(out, p)
	}
	return out
}

// passes says whether a protocol gets through a path. The caller holds mu.
func (w *world) passes(r *radio, kind string) bool {
	return r.up && !r.dead && (kind == pathsel.TCP || !r.noUDP && !r.noSCTP && !w.noSCTP)
}

// prober models probe.Prober.
type prober struct {
	w     *world
	r     *radio
	wake  chan struct{}
	every time.Duration
	stats probe.Stats
	sent  uint64
	last  uint64 // the latest probe that was answered
}

// Pace implements Prober.
func (p *prober) Pace(every time.Duration) {
	p.w.mu.Lock()
	p.every = every
	p.w.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Stats implements Prober.
func (p *prober) Stats() probe.Stats {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return p.stats
}

func (p *prober) run(ctx context.Context) {
	var last time.Time
	for {
		p.w.mu.Lock()
		every := p.every
		p.w.mu.Unlock()
		var due <-chan time.Time
		if every > 0 {
			due = time.After(time.Until(last.Add(every)))
		}
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-due:
			last = time.Now()
			p.send(last)
		}
	}
}

func (p *prober) send(now time.Time) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.stats.Sent++
	p.sent++
	number, answered := p.sent, false
	timeout := time.Second
	if p.stats.RTT > 0 {
		timeout = max(100*time.Millisecond, p.stats.RTT+4*p.stats.RTTVar)
	}
	time.AfterFunc(timeout, func() {
		p.w.mu.Lock()
		defer p.w.mu.Unlock()
		if !answered {
			p.stats.Lost++
			if number > p.last {
				p.stats.Unanswered++
			}
		}
	})
	if !p.r.up || p.r.dead || p.r.noUDP || p.w.r.Float64() < p.r.loss {
		return
	}
	rtt := p.r.rtt
	if p.w.load {
		rtt += p.r.queue
	}
	time.AfterFunc(rtt, func() {
		p.w.mu.Lock()
		defer p.w.mu.Unlock()
		if p.r.dead || !p.r.up {
			return
		}
		answered = true
		p.stats.Answered++
		p.stats.Last, p.stats.Latest, p.stats.Unanswered = time.Now(), rtt, 0
		p.last = max(p.last, number)
		if p.stats.RTT == 0 {
			p.stats.RTT, p.stats.RTTVar = rtt, rtt/2
		}
		p.stats.RTTVar += ((rtt - p.stats.RTT).Abs() - p.stats.RTTVar) / 4
		p.stats.RTT += (rtt - p.stats.RTT) / 8
	})
}

// Plan implements Planner.
func (w *world) Plan(slots []uplink.Slot) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.plans++
	var next []*slot
	for _, p := range slots {
		i := slices.IndexFunc(w.slots, func(s *slot) bool { return s.Name == p.Name })
		if i >= 0 {
			w.slots[i].Slot = p
			next = append(next, w.slots[i])
			continue
		}
		ctx, cancel := context.WithCancel(w.t.Context())
		s := &slot{Slot: p, cancel: cancel, state: uplink.CarrierDialling, since: time.Now()}
		next = append(next, s)
		go w.connect(ctx, s)
	}
	for _, s := range w.slots {
		if !slices.Contains(next, s) {
			s.cancel()
			s.carrier = nil
		}
	}
	w.slots = next
}

func (w *world) connect(ctx context.Context, s *slot) {
	for ctx.Err() == nil {
		dialCtx, cancel := context.WithTimeout(ctx, 20*time.Second)
		c, err := s.Dialers[0].Dial(dialCtx)
		cancel()
		gone := make(chan struct{})
		w.mu.Lock()
		if err == nil && ctx.Err() == nil {
			s.carrier, s.reason, s.gone = c.(*carrier), "joined", gone
			s.carrier.heard = time.Now()
		} else {
			s.state, s.since = uplink.CarrierWaiting, time.Now()
			if err != nil {
				s.reason = err.Error()
			}
		}
		w.mu.Unlock()
		if err == nil {
			select {
			case <-ctx.Done():
			case <-gone:
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// Abandon implements Planner.
func (w *world) Abandon(name string, why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.abandoned = append(w.abandoned, name)
	for _, s := range w.slots {
		if s.Name == name && s.carrier != nil {
			s.carrier, s.state, s.reason = nil, uplink.CarrierDialling, why.Error()
			close(s.gone)
		}
	}
}

// Ask implements Planner.
func (w *world) Ask(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.slots {
		c := s.carrier
		if s.Name != name || c == nil || !w.passes(w.radio(c.on()), c.kind) {
			continue
		}
		time.AfterFunc(w.radio(c.on()).rtt, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			c.heard = time.Now()
		})
	}
}

// Stats implements Planner.
func (w *world) Stats() (st uplink.Stats) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.slots {
		c := uplink.CarrierStats{Slot: s.Name, Path: s.Dialers[0].Path, Kind: s.Dialers[0].Kind, State: s.state, Reason: s.reason, Since: s.since}
		if k := s.carrier; k != nil {
			c.State = uplink.CarrierActive
			if s.Standby {
				c.State = uplink.CarrierStandby
			}
			c.Info, c.InFlight, c.Heard = k.info, k.inFlight, k.heard
			c.Info.Paths = nil
			for _, a := range k.addresses {
				c.Info.Paths = append(c.Info.Paths, uplink.PathInfo{Local: a.Local, Remote: a.Remote.Addr(), Primary: a.Remote.Addr() == k.primary, State: "active"})
			}
			if !k.oldest.IsZero() {
				c.Waiting = time.Since(k.oldest)
			}
			c.Info.RTT = w.roundTrip(k)
			c.RTT = c.Info.RTT
		}
		st.Carriers = append(st.Carriers, c)
	}
	return st
}

// roundTrip is a carrier's. What is sent again tells an association nothing (RFC
// 9260, section 6.3.1, C5): on a path that loses much it knows that of before. The
// caller holds mu.
func (w *world) roundTrip(c *carrier) time.Duration {
	r := w.radio(c.on())
	now := r.rtt
	if w.load {
		now += r.queue
	}
	if c.kind == pathsel.TCP {
		return now
	}
	if r.loss < 0.1 || c.rtt == 0 {
		c.rtt = now
	}
	return c.rtt
}

// on is the path that a carrier's data takes.
func (c *carrier) on() string {
	for _, a := range c.addresses {
		if a.Remote.Addr() == c.primary {
			return a.Path
		}
	}
	return c.path
}

func (w *world) dialTCP(ctx context.Context, path, _ string) (uplink.Carrier, error) {
	return w.dial(ctx, &carrier{w: w, kind: pathsel.TCP, path: path, info: uplink.Info{Kind: "tcp", Congestion: "bbr"}})
}

func (w *world) dialSCTP(ctx context.Context, addresses []PathAddress) (Association, error) {
	return w.dial(ctx, &carrier{w: w, kind: pathsel.SCTP, addresses: slices.Clone(addresses), primary: addresses[0].Remote.Addr(), info: uplink.Info{Kind: "sctp"}})
}

// dial takes two round trips, on a path that lets them through. An association
// tries one address after the other.
func (w *world) dial(ctx context.Context, c *carrier) (*carrier, error) {
	for {
		w.mu.Lock()
		var wait time.Duration
		ok := false
		for _, r := range w.radios {
			if c.kind == pathsel.TCP && r.name != c.path {
				continue
			}
			if ok = w.passes(r, c.kind); ok {
				wait = 2 * r.rtt
				break
			}
		}
		w.mu.Unlock()
		if ok {
			select {
			case <-time.After(wait):
				return c, nil
			case <-ctx.Done():
			}
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// toOne is the collector's address by every path.
func toOne(string) []string { return []string{"collector.example.org:7443"} }

const stepWorld = 10 * time.Millisecond

// run moves data.
func (w *world) run(ctx context.Context) {
	ticker := time.NewTicker(stepWorld)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			w.mu.Lock()
			w.move(time.Now())
			w.mu.Unlock()
		}
	}
}

func (w *world) move(now time.Time) {
	var carrying []*slot
	for _, standby := range []bool{false, true} {
		if len(carrying) > 0 {
			break
		}
		for _, s := range w.slots {
			if s.carrier != nil && s.Standby == standby {
				carrying = append(carrying, s)
			}
		}
	}
	for _, s := range w.slots {
		if s.carrier == nil {
			continue
		}
		c := s.carrier
		r := w.radio(c.on())
		if slices.Contains(carrying, s) && w.load {
			c.inFlight = 32 << 10
			if c.oldest.IsZero() {
				c.oldest = now
			}
		}
		if c.inFlight == 0 || !w.passes(r, c.kind) {
			continue
		}
		c.heard, c.oldest = now, now.Add(-r.rtt)
		bytes := r.rate * stepWorld.Seconds() * (1 - r.loss) / float64(len(carrying))
		if !w.load || !slices.Contains(carrying, s) {
			c.inFlight, c.oldest = 0, time.Time{}
		}
		packets := r.rate * stepWorld.Seconds() / 1400 / float64(len(carrying))
		for range w.round(packets) {
			c.info.Sent++
			if w.r.Float64() < r.loss {
				c.info.Resent++
			}
		}
		c.info.BytesOut += uint64(bytes)
		w.carried[c.kind+" "+c.on()] += bytes
		w.longest = max(w.longest, now.Sub(w.lastTime))
		w.lastTime = now
	}
	if !w.load {
		w.lastTime = now
	}
}

func (w *world) round(v float64) int { return int(v + w.r.Float64()) }

// start runs a steer in a world.
func start(t *testing.T, profile pathsel.Profile, radios ...*radio) *world {
	return startWith(t, profile, func(*Options) {}, radios...)
}

// startWith does so with other options.
func startWith(t *testing.T, profile pathsel.Profile, change func(*Options), radios ...*radio) *world {
	w := &world{t: t, r: rand.New(rand.NewPCG(1, 1)), radios: radios, changed: make(chan struct{}, 1), carried: make(map[string]float64), lastTime: time.Now()}
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() && os.Getenv("STEER_LOG") != "" {
		began := time.Now()
		log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.String("t", fmt.Sprintf("%.2f", time.Since(began).Seconds()))
			}
			return a
		}}))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for _, r := range radios {
		if r.rtt == 0 {
			r.rtt = 40 * time.Millisecond
		}
		if r.rate == 0 {
			r.rate = 1e6
		}
		r.probes = &prober{w: w, r: r, wake: make(chan struct{}, 1), every: time.Second}
		wg.Go(func() { r.probes.run(ctx) })
	}
	opt := Options{
		Profile: profile, Random: w.r, Paths: w.paths, Changed: w.changed, Sender: w,
		DialSCTP: w.dialSCTP, Underlay: "tunnel", DialTCP: w.dialTCP, Collectors: toOne, Logger: log,
	}
	change(&opt)
	w.steer = New(opt)
	wg.Go(func() { w.run(ctx) })
	wg.Go(func() { w.steer.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return w
}

// wait lets the bubble's clock run.
func wait(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// way returns what carries, as the snapshot says it.
func (w *world) way() string {
	s := w.steer.Snapshot()
	for _, p := range s.Paths {
		if p.Primary {
			return way{s.Protocol, p.Name, s.Carriers}.String()
		}
	}
	return s.Protocol
}

func (w *world) want(what string) {
	w.t.Helper()
	if got := w.way(); got != what {
		w.t.Errorf("got %q, want %q; switches: %s", got, what, w.switches())
	}
}

// await waits until it is so, and returns how long that took.
func (w *world) await(what string, most time.Duration) time.Duration {
	w.t.Helper()
	began := time.Now()
	for w.way() != what {
		if time.Since(began) > most {
			w.t.Fatalf("after %v: got %q, want %q; switches: %s", most, w.way(), what, w.switches())
		}
		wait(10 * time.Millisecond)
	}
	return time.Since(began)
}

func (w *world) switches() (text string) {
	for _, s := range w.steer.Snapshot().Switches {
		text += fmt.Sprintf("\n  %s -> %s (%.1f -> %.1f): %s", s.From, s.To, s.FromScore, s.ToScore, s.Reason)
	}
	return text
}

func (w *world) count() int { return len(w.steer.Snapshot().Switches) }

func (w *world) status(path string) PathStatus {
	for _, p := range w.steer.Snapshot().Paths {
		if p.Name == path {
			return p
		}
	}
	w.t.Fatalf("no path %s in the snapshot", path)
	return PathStatus{}
}

// gap returns the longest time without delivery under load since the last call.
func (w *world) gap() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	g := max(w.longest, time.Since(w.lastTime))
	w.longest, w.lastTime = 0, time.Now()
	return g
}
