package steer

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sluice/collector"
	"sluice/pathsel"
	"sluice/reading"
	"sluice/uplink"
	"sluice/uplink/carriertest"
)

// source is an endless uplink.Queue: a batch every so often.
type source struct {
	changed chan struct{}

	mu       sync.Mutex // guards what follows
	segments []reading.Segment
	next     uint64
}

func (*source) Epoch() uint64              { return 7 }
func (q *source) Changed() <-chan struct{} { return q.changed }

func (q *source) add() {
	q.mu.Lock()
	q.next++
	r := reading.Reading{Device: "room", Name: "temperature", Value: reading.Int(int64(q.next)), Time: reading.Time{Wall: int64(q.next)}}
	q.segments = append(q.segments, reading.Segment{First: q.next, Count: 1, Data: reading.AppendBatch(nil, []reading.Reading{r})})
	q.mu.Unlock()
	select {
	case q.changed <- struct{}{}:
	default:
	}
}

func (q *source) Next(lane reading.Lane, after uint64, _ int) (out []reading.Segment, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range q.segments {
		if lane == reading.Live && s.First > after && len(out) < 50 {
			out = append(out, s)
		}
	}
	return out, nil
}

func (q *source) Ack(_ reading.Lane, upto uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.segments = slices.DeleteFunc(q.segments, func(s reading.Segment) bool { return s.First <= upto })
}

// sink is a collector.Output that checks that every reading comes once, in order.
type sink struct {
	t *testing.T

	mu      sync.Mutex // guards what follows
	last    uint64
	at      time.Time
	longest time.Duration // between two arrivals
}

func (*sink) Name() string { return "sink" }
func (*sink) Close() error { return nil }

func (o *sink) Last(_ context.Context, s collector.Stream) (uint64, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last, nil
}

func (o *sink) Write(_ context.Context, _ collector.Stream, after uint64, ds []collector.Delivery) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if after != o.last {
		return collector.ErrConflict
	}
	for _, d := range ds {
		if d.First != o.last+1 {
			o.t.Errorf("got %d where %d is next", d.First, o.last+1)
		}
		o.last = d.Last()
	}
	now := time.Now()
	if !o.at.IsZero() {
		o.longest = max(o.longest, now.Sub(o.at))
	}
	o.at = now
	return nil
}

// gap returns the longest time between two arrivals since the last call.
func (o *sink) gap() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	g := o.longest
	o.longest = 0
	return g
}

// switchboard connects carriers in memory with a collector.
type switchboard struct {
	accept chan uplink.Carrier
	closed chan struct{}

	mu   sync.Mutex // guards what follows
	ends map[string][]*carriertest.End
	dead map[string]bool
}

func (b *switchboard) Accept() (uplink.Carrier, error) {
	select {
	case c := <-b.accept:
		return c, nil
	case <-b.closed:
		return nil, net.ErrClosed
	}
}

func (b *switchboard) Close() error   { close(b.closed); return nil }
func (b *switchboard) Addr() net.Addr { return &net.TCPAddr{} }

// kill makes a path lose everything from now on, without a word.
func (b *switchboard) kill(path string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dead[path] = true
	for _, e := range b.ends[path] {
		e.Cut()
	}
	b.ends[path] = nil
}

func (b *switchboard) dial(ctx context.Context, path string) (*carriertest.End, error) {
	b.mu.Lock()
	dead := b.dead[path]
	b.mu.Unlock()
	if dead {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	near, far := carriertest.Pipe(carriertest.Link{Rate: 1e6, Delay: 20 * time.Millisecond}, "collector", "gw")
	select {
	case b.accept <- far:
	case <-b.closed:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	b.mu.Lock()
	b.ends[path] = append(b.ends[path], near)
	b.mu.Unlock()
	return near, nil
}

// fixedAssociation cannot move from the path that it was dialled over.
type fixedAssociation struct{ *carriertest.End }

func (fixedAssociation) SetPrimary(netip.Addr) error                  { return errors.New("no other path") }
func (fixedAssociation) SetHeartbeat(netip.Addr, time.Duration) error { return nil }
func (fixedAssociation) Readdress(_, _ netip.Addr) error              { return nil }

// With the real sender and the real collector: Wi-Fi dies silently under load.
// The path is left within a second, and every reading arrives once, in order.
func TestSilentDeathDeliversOnce(t *testing.T) {
	for _, sctp := range []bool{false, true} {
		name := map[bool]string{false: "tcp", true: "sctp"}[sctp]
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { silentDeath(t, name, sctp) })
		})
	}
}

// full is a collector.Output that cannot say what it has.
type full struct{ *sink }

func (full) Last(context.Context, collector.Stream) (uint64, error) {
	return 0, errors.New("the disk is full")
}

// The preferred collector answers and takes no gateway, for its output fails: each
// path turns to the other one.
func TestAnotherCollector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quiet := slog.New(slog.DiscardHandler)
		queue := &source{changed: make(chan struct{}, 1)}
		sender := uplink.New(uplink.Options{
			Gateway: "gw", Queue: queue, MaxFrame: 64 << 10, Keepalive: 90 * time.Second, AckTimeout: 15 * time.Second, Logger: quiet,
		})
		out := &sink{t: t}
		boards := make(map[string]*switchboard)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for name, o := range map[string]collector.Output{"a": full{out}, "b": out} {
			board := &switchboard{accept: make(chan uplink.Carrier), closed: make(chan struct{}), ends: make(map[string][]*carriertest.End), dead: make(map[string]bool)}
			boards[name] = board
			far := collector.New(collector.Options{Outputs: []collector.Output{o}, Limits: collector.DefaultLimits(), Logger: quiet})
			wg.Go(func() { far.Serve(ctx, board) })
		}
		startWith(t, pathsel.Default(), func(o *Options) {
			o.Sender, o.DialSCTP, o.NoSCTP = sender, nil, "the test has none"
			o.Collectors = func(string) []string { return []string{"a", "b"} }
			o.DialTCP = func(ctx context.Context, path, to string) (uplink.Carrier, error) { return boards[to].dial(ctx, path) }
		}, wifi(), cell())
		wg.Go(func() { sender.Run(ctx) })
		queue.add()
		wait(10 * time.Second)
		st := sender.Stats()
		for _, c := range st.Carriers {
			if !hasJoined(c) {
				t.Errorf("%s is %s: %s", c.Slot, c.State, c.Reason)
			}
		}
		if st.Collector != "b" || st.Readings != 1 {
			t.Errorf("%d readings went to %q, want 1 to b", st.Readings, st.Collector)
		}
		cancel()
		wg.Wait()
	})
}

func silentDeath(t *testing.T, protocol string, sctp bool) {
	quiet := slog.New(slog.DiscardHandler)
	wlan, wwan := wifi(), cell()
	w := &world{t: t, r: rand.New(rand.NewPCG(1, 1)), radios: []*radio{wlan, wwan}, changed: make(chan struct{}, 1), carried: make(map[string]float64)}
	board := &switchboard{accept: make(chan uplink.Carrier), closed: make(chan struct{}), ends: make(map[string][]*carriertest.End), dead: make(map[string]bool)}
	out := &sink{t: t}
	queue := &source{changed: make(chan struct{}, 1)}
	sender := uplink.New(uplink.Options{
		Gateway: "gw", Queue: queue, Flush: 10 * time.Millisecond, MaxFrame: 64 << 10,
		Keepalive: 90 * time.Second, AckTimeout: 15 * time.Second, Logger: quiet,
	})
	opt := Options{
		Profile: pathsel.Default(), Random: w.r, Paths: w.paths, Changed: w.changed, Sender: sender,
		DialTCP:    func(ctx context.Context, path, _ string) (uplink.Carrier, error) { return board.dial(ctx, path) },
		Collectors: toOne, Logger: quiet, Underlay: "tunnel", NoSCTP: "the test has none",
	}
	if sctp {
		opt.DialSCTP = func(ctx context.Context, a []PathAddress) (Association, error) {
			e, err := board.dial(ctx, a[0].Path)
			return fixedAssociation{e}, err
		}
	}
	w.steer = New(opt)
	far := collector.New(collector.Options{Outputs: []collector.Output{out}, Limits: collector.DefaultLimits(), Logger: quiet})

	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for _, r := range w.radios {
		r.probes = &prober{w: w, r: r, wake: make(chan struct{}, 1), every: time.Second}
		r.rtt = 40 * time.Millisecond
		wg.Go(func() { r.probes.run(ctx) })
	}
	wg.Go(func() { far.Serve(ctx, board) })
	wg.Go(func() { sender.Run(ctx) })
	wg.Go(func() { w.steer.Run(ctx) })
	wg.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				queue.add()
			case <-ctx.Done():
				return
			}
		}
	})
	w.await(protocol+" wlan0", 3*time.Second)
	wait(5 * time.Second)
	if gap := out.gap(); gap > time.Second {
		t.Errorf("gap %v before anything happens", gap)
	}
	out.gap()
	w.set(func() { wlan.dead = true })
	board.kill("wlan0")
	began := time.Now()
	for w.way() != "tcp wwan1" && w.way() != "sctp wwan1" && time.Since(began) < 3*time.Second {
		wait(10 * time.Millisecond)
	}
	left := time.Since(began)
	wait(5 * time.Second)
	gap, most := out.gap(), time.Second
	if sctp {
		most = 1200 * time.Millisecond // this association cannot move: it has to be given up
	}
	t.Logf("left after %v, longest gap %v, %d readings; %s", left, gap, out.last, w.switches())
	if left > 600*time.Millisecond || gap > most {
		t.Errorf("left after %v, gap %v, want 0.6 s and %v", left, gap, most)
	}
	queue.mu.Lock()
	stored := queue.next
	queue.mu.Unlock()
	out.mu.Lock()
	if stored-out.last > 50 {
		t.Errorf("%d of %d readings arrived", out.last, stored)
	}
	out.mu.Unlock()
	cancel()
	wg.Wait()
}
