//go:build !386

package sctp

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"sluice/uplink"
)

// pair is an association without TLS over two paths.
type pair struct {
	*twoPaths
	near, far *Association
}

func newPair(t testing.TB, tuning Tuning, shapes ...shape) *pair {
	t.Helper()
	p := &pair{twoPaths: newTwoPaths(t)}
	for i, s := range shapes {
		p.shape(t, i, s)
	}
	p.near, p.far = connect(t, p.gateway, p.collector, tuning, Options{Local: p.local, Remote: p.remote, Tuning: tuning})
	return p
}

// connect listens at one host and dials from another.
func connect(t testing.TB, from, to *host, tuning Tuning, opt Options) (near, far *Association) {
	t.Helper()
	var l *RawListener
	to.in(t, func() (err error) {
		l, err = ListenRaw(opt.Remote, tuning)
		return err
	})
	defer l.Close()
	from.in(t, func() (err error) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		near, err = DialRaw(ctx, opt)
		return err
	})
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	far = c.(*Association)
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

const stampedSize = 1000

// stamped sends a numbered message every so often until the context ends, and
// tells the far end's longest time between two, and the longest delay of one.
type stamped struct {
	messages             int
	longestGap, longestD time.Duration
}

func (p *pair) flow(t testing.TB, ctx context.Context, every time.Duration) <-chan stamped {
	result := make(chan stamped, 1)
	start := time.Now()
	go func() {
		b := make([]byte, stampedSize)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for n := uint64(0); ; n++ {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			binary.BigEndian.PutUint64(b, n)
			binary.BigEndian.PutUint64(b[8:], uint64(time.Since(start)))
			if _, err := p.near.Write(b); err != nil {
				t.Errorf("write: %v", err)
				return
			}
		}
	}()
	go func() { // what the kernel has to say comes with reading
		b := make([]byte, 256)
		for {
			if _, err := p.near.Read(b); err != nil {
				return
			}
		}
	}()
	go func() {
		var r stamped
		defer func() { result <- r }()
		b := make([]byte, stampedSize)
		last := start
		for {
			end, ok := ctx.Deadline()
			if !ok {
				end = start.Add(time.Minute)
			}
			p.far.SetReadDeadline(end.Add(500 * time.Millisecond))
			if _, err := io.ReadFull(p.far, b); err != nil {
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("read: %v", err)
				}
				if ctx.Err() != nil && r.messages > 0 {
					return
				}
				r.longestGap = max(r.longestGap, time.Since(last))
				return
			}
			now := time.Now()
			if got := binary.BigEndian.Uint64(b); got != uint64(r.messages) {
				t.Errorf("message %d: got number %d", r.messages, got)
			}
			if r.messages > 0 {
				r.longestGap = max(r.longestGap, now.Sub(last))
			}
			r.longestD = max(r.longestD, now.Sub(start.Add(time.Duration(binary.BigEndian.Uint64(b[8:])))))
			r.messages, last = r.messages+1, now
		}
	}()
	return result
}

// paths waits until the gateway's view of its paths is as wanted.
func (p *pair) await(t testing.TB, what string, want func([]uplink.PathInfo) bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	end := time.After(20 * time.Second)
	for {
		if want(p.near.Info().Paths) {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("%s: not within 20 s: %+v", what, p.near.Info().Paths)
		}
	}
}

func confirmed(paths []uplink.PathInfo) bool {
	return len(paths) == 2 && paths[0].State == "active" && paths[1].State == "active"
}

// Silent death of the primary under load: what is sent goes by the other path
// within half a second, or two at a round trip of half a second; and the path
// counts again when it is back. F16.
func TestFailover(t *testing.T) {
	for _, c := range []struct{ rtt, most time.Duration }{
		{20 * time.Millisecond, 500 * time.Millisecond},
		{100 * time.Millisecond, 600 * time.Millisecond}, // of which 100 ms are the way
		{500 * time.Millisecond, 2 * time.Second},
	} {
		t.Run(c.rtt.String(), func(t *testing.T) {
			way := shape{delay: c.rtt / 2}
			p := newPair(t, Tuning{}, way, way)
			p.await(t, "both paths confirmed", confirmed)
			ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
			defer cancel()
			result := p.flow(t, ctx, 10*time.Millisecond)
			after(t, 2*time.Second)
			t.Logf("before: %+v", p.near.Info().Paths[0])
			before := p.gateway.sent(t, cables[1])
			p.shape(t, 0, shape{delay: c.rtt / 2, loss: 100})
			died := time.Now()
			p.await(t, "the first path is left", func(paths []uplink.PathInfo) bool { return paths[0].State != "active" })
			left := time.Since(died)
			p.await(t, "the second path is primary", func(paths []uplink.PathInfo) bool { return paths[1].Primary })
			moved := time.Since(died)
			r := <-result
			if carried := p.gateway.sent(t, cables[1]) - before; carried < 100*stampedSize {
				t.Errorf("the second path carried %d bytes, want at least %d", carried, 100*stampedSize)
			}
			t.Logf("left after %v, primary moved after %v, %+v", left.Round(time.Millisecond), moved.Round(time.Millisecond), r)
			if r.longestGap > c.most {
				t.Errorf("longest gap in delivery %v, want at most %v", r.longestGap, c.most)
			}
			p.shape(t, 0, way)
			if err := p.near.SetPrimary(p.remote[0].Addr()); err != nil {
				t.Fatal(err)
			}
			back := time.Now()
			p.await(t, "the first path is back and primary", func(paths []uplink.PathInfo) bool {
				return paths[0].State == "active" && paths[0].Primary
			})
			t.Logf("back %v after the order", time.Since(back).Round(time.Millisecond))
			if got := events(p.near); !slices.Contains(got, "path failing 10.90.0.1") || !slices.Contains(got, "path up 10.90.0.1") {
				t.Errorf("events: got %q, want the first path to fail and to come up", got)
			}
		})
	}
}

// after waits for a moment of the network's own time, which no test can order.
func after(t testing.TB, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
		t.Fatal("test ended")
	}
}

func events(a *Association) (all []string) {
	for {
		select {
		case e := <-a.Events():
			all = append(all, e.String())
		default:
			return all
		}
	}
}

// Jitter and loss move a few packets, but never the primary path.
func TestNoFalseAlarm(t *testing.T) {
	bad := shape{delay: 35 * time.Millisecond, jitter: 25 * time.Millisecond, loss: 2}
	p := newPair(t, Tuning{}, bad, bad)
	p.await(t, "both paths confirmed", confirmed)
	primary := func() netip.Addr {
		for _, path := range p.near.Info().Paths {
			if path.Primary {
				return path.Remote
			}
		}
		return netip.Addr{}
	}
	first := primary() // the other one, if the first packet was lost
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	r := <-p.flow(t, ctx, 50*time.Millisecond)
	all := events(p.near)
	doubts := 0
	for _, e := range all {
		if e == "path failing "+first.String() {
			doubts++
		}
	}
	t.Logf("%+v, traffic left the path for a moment %d times", r, doubts)
	if primary() != first {
		t.Errorf("the primary path moved from %v: %+v, events %q", first, p.near.Info().Paths, all)
	}
}

// patient are timers that take no stall of a busy machine for a dead path, for
// tests that are not about time.
func patient() Tuning {
	v := appliance()
	v.initial, v.least, v.most = 3*time.Second, 3*time.Second, 3*time.Second
	return Tuning{timers: v}
}

// SetPrimary moves the data in both directions, once both ends know the path.
func TestSetPrimary(t *testing.T) {
	way := shape{delay: 10 * time.Millisecond}
	p := newPair(t, patient(), way, way)
	p.await(t, "both paths confirmed at both ends", func(near []uplink.PathInfo) bool {
		return confirmed(near) && confirmed(p.far.Info().Paths)
	})
	go io.Copy(p.far, p.far) // echoes until closed
	p.near.SetDeadline(time.Now().Add(20 * time.Second))
	carried := func() (there, back [2]uint64) {
		var before, after [4]uint64
		count := func(n *[4]uint64) {
			for i, name := range cables {
				n[i], n[2+i] = p.gateway.sent(t, name), p.collector.sent(t, name)
			}
		}
		count(&before)
		b := make([]byte, 10_000)
		for range 20 {
			if _, err := p.near.Write(b); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(p.near, b); err != nil {
				t.Fatal(err)
			}
		}
		count(&after)
		for i := range 2 {
			there[i], back[i] = after[i]-before[i], after[2+i]-before[2+i]
		}
		return there, back
	}
	await := func(path int) {
		t.Helper()
		const most, least = 20_000, 200_000
		var there, back [2]uint64
		for range 5 {
			there, back = carried()
			if min(there[path], back[path]) >= least && max(there[1-path], back[1-path]) <= most {
				return
			}
		}
		t.Errorf("got %v there and %v back, want all on path %d; the far end's paths: %+v", there, back, path, p.far.Info().Paths)
	}
	await(0)
	if err := p.near.SetPrimary(p.remote[1].Addr()); err != nil {
		t.Fatal(err)
	}
	await(1)
	if err := p.near.SetPrimary(p.local[0]); err == nil {
		t.Error("an address that is not the peer's as primary: got no error")
	}
}

// F21: an address that comes takes the place in the association of one that goes.
func TestAddressChange(t *testing.T) {
	p := newPair(t, patient(), shape{}, shape{})
	p.await(t, "both paths confirmed", confirmed)
	go io.Copy(p.far, p.far)
	p.near.SetDeadline(time.Now().Add(20 * time.Second))
	echo := func() {
		t.Helper()
		b := make([]byte, 1000)
		if _, err := p.near.Write(b); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(p.near, b); err != nil {
			t.Fatal(err)
		}
	}
	echo()
	fresh := p.local[1].Next()
	p.gateway.address(t, cables[1], fresh)
	if err := p.near.Readdress(p.local[1], fresh); err != nil {
		t.Fatal(err)
	}
	known := func(address netip.Addr, want bool) {
		t.Helper()
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for end := time.Now().Add(5 * time.Second); ; <-tick.C {
			found, err := p.far.sock.addresses(optPeerAddrs)
			if err != nil {
				t.Fatal(err)
			}
			has := false
			for _, a := range found {
				has = has || a.Addr() == address
			}
			if has == want {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("the peer's list has %v: %v, want %v", address, has, want)
			}
		}
	}
	known(fresh, true)
	known(p.local[1], false)
	echo()
	if err := p.near.Readdress(p.local[1], p.remote[0].Addr()); err == nil {
		t.Error("an address that this end does not have: got no error")
	}
}

// F20: a middlebox that drops SCTP is found out when the caller's patience ends;
// F16: a dead first path only costs a timeout.
func TestDialOverDeadPaths(t *testing.T) {
	n := newTwoPaths(t)
	n.collector.in(t, func() error {
		l, err := ListenRaw(n.remote, Tuning{})
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	})
	dial := func() (time.Duration, error) {
		var took time.Duration
		var failed error
		n.gateway.in(t, func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			defer cancel()
			start := time.Now()
			a, err := DialRaw(ctx, Options{Local: n.local, Remote: n.remote})
			took = time.Since(start)
			if failed = err; err == nil {
				a.Close()
			}
			return nil
		})
		return took, failed
	}
	n.shape(t, 0, shape{loss: 100})
	if took, err := dial(); err != nil {
		t.Errorf("first path dead: %v after %v, want an association", err, took)
	} else {
		t.Logf("first path dead: dialled in %v", took)
	}
	n.shape(t, 1, shape{loss: 100})
	took, err := dial()
	if !errors.Is(err, context.DeadlineExceeded) || took > 1700*time.Millisecond {
		t.Errorf("both paths dead: got %v after %v, want a deadline exceeded after 1.5 s", err, took)
	}
	t.Logf("both paths dead: %v", err)
}

// A writer that waits for room is woken by Close, and by its deadline.
func TestCloseWakesWriter(t *testing.T) {
	p := newPair(t, Tuning{}, shape{}, shape{})
	for _, limit := range []int{0, 10_000} {
		p.near.LimitUnsent(limit)
		p.near.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
		var err error
		for b := make([]byte, 100_000); err == nil; { // the far end reads nothing
			_, err = p.near.Write(b)
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("limit %d: got %v, want a deadline exceeded", limit, err)
		}
		t.Logf("limit %d: %+v", limit, p.near.Info())
	}
	p.near.SetWriteDeadline(time.Time{})
	failed := make(chan error, 1)
	go func() {
		_, err := p.near.Write(make([]byte, 100_000))
		failed <- err
	}()
	after(t, 100*time.Millisecond)
	p.near.Close()
	select {
	case err := <-failed:
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("got %v, want %v", err, net.ErrClosed)
		}
	case <-time.After(5 * time.Second):
		t.Error("Close did not wake the writer")
	}
}

// What is not on its way yet stays near its limit while a slow path drains.
func TestUnsentStaysNearLimit(t *testing.T) {
	gateway, collector, local, remote := lossyPath(t, 8_000_000, 0)
	opt := Options{Remote: []netip.AddrPort{remote}, Local: []netip.Addr{local}}
	near, far := connect(t, gateway, collector, Tuning{}, opt)
	go io.Copy(io.Discard, far)
	const limit, piece = 8000, 4000
	near.LimitUnsent(limit)
	near.SetDeadline(time.Now().Add(20 * time.Second))
	most := 0
	start := time.Now()
	for range 1000 {
		if _, err := near.Write(make([]byte, piece)); err != nil {
			t.Fatal(err)
		}
		most = max(most, near.unsent())
	}
	t.Logf("at most %d bytes unsent, %.0f KB/s", most, 1000*piece/1000/time.Since(start).Seconds())
	if most > limit+piece+near.fragment {
		t.Errorf("%d bytes unsent, want at most %d and a write", most, limit)
	}
}
