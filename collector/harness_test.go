package collector_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/collector"
	"sluice/reading"
	"sluice/uplink"
	"sluice/uplink/carriertest"
)

const gateway = "gw-1"

// queue is an uplink.Queue in memory that outlives the uplinks that use it.
type queue struct {
	changed chan struct{}

	mu       sync.Mutex // guards what follows
	epoch    uint64
	segments [reading.Lanes][]reading.Segment
	next     [reading.Lanes]uint64
	acked    [reading.Lanes]uint64
}

func newQueue() *queue {
	return &queue{epoch: 77, changed: make(chan struct{}, 1), next: [reading.Lanes]uint64{1, 1, 1}}
}

// scatter makes numbers that no compression can predict.
func scatter(x uint64) uint64 {
	for range 3 {
		x = (x ^ x>>29) * 0x9e3779b97f4a7c15
	}
	return x
}

// value is what the reading with a sequence number holds, so that an output can
// tell them apart.
func value(lane reading.Lane, seq uint64) reading.Reading {
	return reading.Reading{
		Device: fmt.Sprintf("room-%d", seq%20), Name: "temperature", Unit: "Cel",
		Value: reading.Int(int64(scatter(seq)>>24)*4 + int64(lane)),
		Time:  reading.Time{Wall: int64(1764536400+seq) * 1e9},
	}
}

func (q *queue) wake() {
	select {
	case q.changed <- struct{}{}:
	default:
	}
}

// add stores count readings of a lane as one segment.
func (q *queue) add(lane reading.Lane, count int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	rs := make([]reading.Reading, count)
	for i := range rs {
		rs[i] = value(lane, q.next[lane]+uint64(i))
	}
	q.addSegment(lane, reading.Segment{Count: count, Data: reading.AppendBatch(nil, rs)})
}

// addSegment numbers and stores a segment. The caller holds mu.
func (q *queue) addSegment(lane reading.Lane, s reading.Segment) {
	s.First = q.next[lane]
	q.next[lane] += uint64(s.Count)
	q.segments[lane] = append(q.segments[lane], s)
	q.wake()
}

// remove loses the segment that holds a reading, as a quota does.
func (q *queue) remove(lane reading.Lane, seq uint64) (lost reading.Segment) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, s := range q.segments[lane] {
		if s.First <= seq && seq <= s.Last() {
			q.segments[lane] = append(append([]reading.Segment(nil), q.segments[lane][:i]...), q.segments[lane][i+1:]...)
			return s
		}
	}
	return lost
}

func (q *queue) Changed() <-chan struct{} { return q.changed }

func (q *queue) Epoch() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.epoch
}

// renew empties the queue and begins a new life of it.
func (q *queue) renew(epoch uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.epoch = epoch
	q.segments = [reading.Lanes][]reading.Segment{}
	q.next, q.acked = [reading.Lanes]uint64{1, 1, 1}, [reading.Lanes]uint64{}
}

func (q *queue) Next(lane reading.Lane, after uint64, maxBytes int) (out []reading.Segment, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	size := 0
	for _, s := range q.segments[lane] {
		if s.Last() <= after {
			continue
		}
		if len(out) > 0 && size+len(s.Data) > maxBytes {
			break
		}
		size += len(s.Data)
		out = append(out, s)
	}
	return out, nil
}

func (q *queue) Ack(lane reading.Lane, upto uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.acked[lane] = max(q.acked[lane], upto)
	for len(q.segments[lane]) > 0 && q.segments[lane][0].Last() <= upto {
		q.segments[lane] = q.segments[lane][1:]
	}
}

// waiting is how many readings are stored and not acknowledged, in segments.
func (q *queue) waiting() (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, lane := range q.segments {
		for _, s := range lane {
			n += s.Count
		}
	}
	return n
}

// got is a reading that an output holds.
type got struct {
	seq     uint64
	reading reading.Reading
	at      time.Time
}

// output is a collector.Output in memory that outlives collectors.
type output struct {
	name  string
	delay time.Duration // of a write

	mu         sync.Mutex // guards what follows
	held       map[collector.Stream][]got
	last       map[collector.Stream]uint64
	unreadable []collector.Delivery
	fails      int  // so many writes from now fail, before anything is written
	lies       int  // so many writes are made, and then said to have failed
	broken     bool // every write fails
	faults     []string
	writes     int
}

func newOutput(name string) *output {
	return &output{name: name, held: make(map[collector.Stream][]got), last: make(map[collector.Stream]uint64)}
}

var errOutput = errors.New("output is down")

func (o *output) Name() string { return o.name }
func (o *output) Close() error { return nil }

func (o *output) Last(ctx context.Context, s collector.Stream) (uint64, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last[s], ctx.Err()
}

func (o *output) Write(ctx context.Context, s collector.Stream, after uint64, ds []collector.Delivery) error {
	if o.delay > 0 {
		select {
		case <-time.After(o.delay):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.broken || o.fails > 0 {
		o.fails--
		return errOutput
	}
	if o.last[s] != after {
		return collector.ErrConflict
	}
	o.writes++
	for _, d := range ds {
		if d.First <= o.last[s] || d.Unreadable == nil && len(d.Readings) != d.Count {
			o.faults = append(o.faults, fmt.Sprintf("%v: delivery %d of %d readings after %d, %d given", s, d.First, d.Count, o.last[s], len(d.Readings)))
		}
		if d.Unreadable != nil {
			o.unreadable = append(o.unreadable, d)
		}
		for i, r := range d.Readings {
			o.held[s] = append(o.held[s], got{seq: d.First + uint64(i), reading: r, at: time.Now()})
		}
		o.last[s] = d.Last()
	}
	if o.lies > 0 {
		o.lies--
		return errOutput
	}
	return nil
}

func (o *output) set(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f()
}

// gap is the longest time in which nothing of a lane arrived, between the first
// that did since an instant, and the last.
func (o *output) gap(s collector.Stream, since time.Time) (longest time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := since
	for _, g := range o.held[s] {
		if g.at.After(since) {
			longest = max(longest, g.at.Sub(before))
			before = g.at
		}
	}
	return longest
}

func (o *output) count(s collector.Stream) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.held[s])
}

// check fails unless the output holds each reading of a lane once, in order,
// with its value; those for which missing is true may be absent.
func (o *output) check(t *testing.T, s collector.Stream, upto uint64, missing func(seq uint64) bool) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, f := range o.faults {
		t.Error(f)
	}
	next := uint64(1)
	for _, g := range o.held[s] {
		for next < g.seq && missing != nil && missing(next) {
			next++
		}
		if g.seq != next {
			t.Fatalf("output %s, lane %s: got %d where %d is next", o.name, s.Lane, g.seq, next)
		}
		if want := value(s.Lane, g.seq); g.reading != want {
			t.Fatalf("output %s, lane %s, %d: got %+v, want %+v", o.name, s.Lane, g.seq, g.reading, want)
		}
		next++
	}
	for next <= upto && missing != nil && missing(next) {
		next++
	}
	if next != upto+1 {
		t.Fatalf("output %s, lane %s: holds up to %d, want %d", o.name, s.Lane, next-1, upto)
	}
}

func stream(lane reading.Lane) collector.Stream {
	return collector.Stream{Gateway: gateway, Epoch: 77, Lane: lane}
}

// listener hands carriers to a collector.
type listener struct {
	carriers chan uplink.Carrier
	once     sync.Once
	closed   chan struct{}
}

func newListener() *listener {
	return &listener{carriers: make(chan uplink.Carrier), closed: make(chan struct{})}
}

func (l *listener) Accept() (uplink.Carrier, error) {
	select {
	case c := <-l.carriers:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *listener) Addr() net.Addr { return &net.TCPAddr{} }

// far is a collector that can be stopped and started.
type far struct {
	t      *testing.T
	opt    collector.Options
	c      *collector.Collector
	ln     *listener
	now    atomic.Pointer[listener] // ln, for other goroutines
	cancel context.CancelFunc
	done   chan struct{}
}

func startCollector(t *testing.T, outputs ...collector.Output) *far {
	t.Helper()
	f := &far{t: t, opt: collector.Options{
		Outputs: outputs,
		Limits:  collector.DefaultLimits(),
		Logger:  slog.New(slog.DiscardHandler),
	}}
	f.start()
	return f
}

func (f *far) start() {
	f.c = collector.New(f.opt)
	f.ln = newListener()
	f.now.Store(f.ln)
	f.done = make(chan struct{})
	var ctx context.Context
	ctx, f.cancel = context.WithCancel(context.Background())
	ln, c, done := f.ln, f.c, f.done
	go func() {
		defer close(done)
		if err := c.Serve(ctx, ln); err != nil {
			f.t.Errorf("serve: %v", err)
		}
	}()
}

func (f *far) stop() {
	f.cancel()
	<-f.done
}

// path dials a collector in memory, and remembers the carriers to cut them.
type path struct {
	link carriertest.Link
	to   func() *listener // nil listener: nobody there
	wrap func(uplink.Carrier) uplink.Carrier

	mu    sync.Mutex // guards what follows
	ends  []*carriertest.End
	dials int
}

func (p *path) dial(ctx context.Context) (uplink.Carrier, error) {
	p.mu.Lock()
	p.dials++
	p.mu.Unlock()
	ln := p.to()
	if ln == nil {
		return nil, errors.New("connection refused")
	}
	near, remote := carriertest.Pipe(p.link, "collector", gateway)
	select {
	case ln.carriers <- remote:
	case <-ln.closed:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	p.mu.Lock()
	p.ends = append(p.ends, near)
	p.mu.Unlock()
	if p.wrap != nil {
		return p.wrap(near), nil
	}
	return near, nil
}

// cut makes all carriers lose everything, without telling anyone.
func (p *path) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.ends {
		e.Cut()
	}
	p.ends = nil
}

// each does something to all carriers that were dialled and not cut.
func (p *path) each(f func(*carriertest.End)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.ends {
		f(e)
	}
}

// near is an uplink that can be stopped.
type near struct {
	*uplink.Sender
	cancel context.CancelFunc
	done   chan struct{}
}

// slot is a slot that dials over paths in order.
func slot(name string, paths ...*path) uplink.Slot {
	s := uplink.Slot{Name: name}
	for i, p := range paths {
		s.Dialers = append(s.Dialers, uplink.Dialer{Name: fmt.Sprint("collector-", i), Kind: "memory", Path: name, Dial: p.dial})
	}
	return s
}

// standby makes a slot one that carries for want of others.
func standby(s uplink.Slot) uplink.Slot {
	s.Standby = true
	return s
}

func startUplink(q *queue, change func(*uplink.Options), paths ...*path) *near {
	opt := uplink.Options{
		Gateway: gateway, Queue: q, Flush: 50 * time.Millisecond, MaxFrame: 64 << 10,
		Keepalive: 90 * time.Second, AckTimeout: 15 * time.Second,
		Logger: slog.New(slog.DiscardHandler),
	}
	if len(paths) > 0 {
		opt.Slots = []uplink.Slot{slot("memory", paths...)}
	}
	if change != nil {
		change(&opt)
	}
	n := &near{Sender: uplink.New(opt), done: make(chan struct{})}
	var ctx context.Context
	ctx, n.cancel = context.WithCancel(context.Background())
	go func() {
		defer close(n.done)
		n.Run(ctx)
	}()
	return n
}

func (n *near) stop() {
	n.cancel()
	<-n.done
}

// within waits until cond holds, looking every few milliseconds of a bubble's
// time, and fails after limit.
func within(t *testing.T, limit time.Duration, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); !cond(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, limit)
		}
	}
}
