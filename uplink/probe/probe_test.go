package probe

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// start runs a prober and a responder over n until the test ends.
func start(t *testing.T, n *network, interval time.Duration) *Prober {
	t.Helper()
	p, err := New(Options{Conn: n.near, Remote: netip.MustParseAddrPort(n.far.addr.String()), Interval: interval})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() { done <- p.Run(ctx) }()
	go func() { done <- Respond(ctx, n.far) }()
	t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
	return p
}

// wait lets the bubble's clock run.
func wait(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestGoodPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, newNetwork(delay(20*time.Millisecond), delay(10*time.Millisecond)), time.Second)
		if got, want := p.Stats().Timeout, time.Second; got != want {
			t.Errorf("timeout before the first answer: got %v, want %v", got, want)
		}
		wait(10*time.Second - time.Millisecond)
		got := p.Stats()
		want := Stats{Sent: 10, Answered: 10, RTT: 30 * time.Millisecond, Latest: 30 * time.Millisecond, Last: time.Now().Add(-969 * time.Millisecond), Timeout: 100 * time.Millisecond}
		want.RTTVar = got.RTTVar
		if got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		if got.RTTVar > 2*time.Millisecond {
			t.Errorf("variation of a steady path: got %v, want almost none", got.RTTVar)
		}
	})
}

// Loss over a slot is the growth of the counters, and only what has timed out
// counts.
func TestLossOverSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		third := func(n int, _ []byte) (time.Duration, bool) { return 10 * time.Millisecond, n%3 != 2 }
		p := start(t, newNetwork(third, delay(10*time.Millisecond)), 100*time.Millisecond)
		wait(50 * time.Millisecond)
		before := p.Stats()
		wait(30 * time.Second)
		after := p.Stats()
		sent, lost := after.Sent-before.Sent, after.Lost-before.Lost
		if sent != 300 || lost != 100 {
			t.Errorf("got %d of %d lost, want 100 of 300", lost, sent)
		}
		if after.Sent != after.Answered+after.Lost {
			t.Errorf("got %+v, want every probe but those on their way in the account", after)
		}
	})
}

// F16: a path that swallows everything is seen after three probes at the pace of
// doubt, 100 ms, and when it comes back with the first answer.
func TestSilentDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(delay(10*time.Millisecond), delay(10*time.Millisecond))
		p := start(t, n, time.Minute)
		wait(time.Second)
		if s := p.Stats(); s.Sent != 1 || s.Unanswered != 0 {
			t.Fatalf("got %+v, want one probe, answered", s)
		}
		n.near.become(swallow)
		p.Pace(100 * time.Millisecond) // at once, since the latest is older
		wait(0)
		if s := p.Stats(); s.Sent != 2 {
			t.Errorf("probes after a change of pace: got %d, want 2", s.Sent)
		}
		wait(310 * time.Millisecond)
		if s := p.Stats(); s.Unanswered != 3 || s.Lost != 3 {
			t.Errorf("after 0.3 s: got %+v, want 3 unanswered", s)
		}
		n.near.become(delay(10 * time.Millisecond))
		wait(120 * time.Millisecond)
		if s := p.Stats(); s.Unanswered != 0 {
			t.Errorf("after an answer: got %d unanswered, want none", s.Unanswered)
		}
	})
}

// An answer after its timeout is a loss, but the path was heard; and soon such
// answers are in time again.
func TestLateAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(delay(10*time.Millisecond), delay(0))
		p := start(t, n, 200*time.Millisecond)
		wait(10 * time.Second)
		before := p.Stats()
		n.near.become(delay(700 * time.Millisecond)) // a queue has filled
		wait(5 * time.Second)
		during := p.Stats()
		if lost := during.Lost - before.Lost; lost == 0 || lost > 5 {
			t.Errorf("a path that became slow: got %d lost, want a few until the timeout has followed", lost)
		}
		if during.Unanswered != 0 || time.Since(during.Last) > 200*time.Millisecond {
			t.Errorf("got %+v, want the path heard", during)
		}
		wait(5 * time.Second)
		if after := p.Stats(); after.Lost != during.Lost {
			t.Errorf("got %d more lost, want none once the timeout has followed", after.Lost-during.Lost)
		}
	})
}

func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, newNetwork(delay(0), delay(0)), 0)
		for _, step := range []struct {
			pace, run time.Duration
			want      uint64
		}{
			{0, time.Hour, 0},
			{time.Minute, time.Hour, 61},                   // at once, then each minute
			{15 * time.Second, time.Minute, 61 + 4},        // the latest is as old as the change
			{100 * time.Millisecond, time.Second, 65 + 10}, // likewise
			{-1, time.Hour, 75},
		} {
			p.Pace(step.pace)
			wait(step.run)
			if got := p.Stats().Sent; got != step.want {
				t.Errorf("probes sent with %v after %v: got %d, want %d", step.pace, step.run, got, step.want)
			}
		}
	})
}

// A socket that refuses to send, for want of a route or an interface, loses.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(delay(0), delay(0))
		n.near.refuse(syscall.ENETUNREACH)
		p := start(t, n, time.Second)
		wait(4500 * time.Millisecond)
		if s := p.Stats(); s.Sent != 5 || s.Lost != 4 || s.Unanswered != 4 {
			t.Errorf("got %+v, want 5 sent and the 4 that timed out lost", s)
		}
	})
}

// Answers that were never asked for, asked for by somebody else, or heard before
// do not count.
func TestForgedAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(nil, delay(0))
		var asked []byte
		n.near.out = func(_ int, b []byte) (time.Duration, bool) { asked = append([]byte(nil), b...); return 0, false }
		p := start(t, n, time.Hour)
		wait(0)
		_, identity := parsePacket(asked)
		truth := appendPacket(nil, answer, identity, packetLen)
		for _, forged := range [][]byte{
			nil, {1}, asked, // a request, as an echo service would return it
			appendPacket(nil, answer, identity^1<<40, packetLen),
			appendPacket(nil, answer, identity^1, packetLen), // another place
			appendPacket(nil, answer, 0, packetLen),
			truth[:packetLen-1],
			append([]byte("SLP"), truth[kindAt:]...),
		} {
			n.far.WriteTo(forged, nil)
			wait(0)
			if s := p.Stats(); s.Answered != 0 {
				t.Fatalf("%x was taken for an answer to %x", forged, asked)
			}
		}
		for range 3 {
			n.far.WriteTo(truth, nil)
		}
		wait(0)
		if s := p.Stats(); s.Answered != 1 {
			t.Errorf("an answer and two copies: got %d, want 1", s.Answered)
		}
	})
}

// Answers to probes of another process, or forgotten ones, do not count.
func TestLedgerForgets(t *testing.T) {
	var l ledger
	now := time.Unix(0, 0)
	first := l.send(now, 7)
	for i := range uint64(remembered) {
		now = now.Add(time.Millisecond)
		l.send(now, i<<8)
	}
	if l.hear(now, first) {
		t.Error("an answer to a forgotten probe was taken")
	}
	if l.stats.Lost != 1 {
		t.Errorf("lost: got %d, want 1, the forgotten one", l.stats.Lost)
	}
	l.expire(now.Add(time.Hour))
	if l.stats.Sent != remembered+1 || l.stats.Lost != remembered+1 {
		t.Errorf("got %+v, want all lost", l.stats)
	}
}

// An old probe that times out after a later one was answered is a loss, but not
// one in a row.
func TestUnansweredInRow(t *testing.T) {
	var l ledger
	now := time.Unix(0, 0)
	at := func(ms int) time.Time { return now.Add(time.Duration(ms) * time.Millisecond) }
	l.send(at(0), 1)
	second := l.send(at(10), 2)
	l.hear(at(20), second)
	l.expire(at(5000))
	if l.stats.Lost != 1 || l.stats.Unanswered != 0 {
		t.Errorf("got %+v, want one lost, none in a row", l.stats)
	}
}

// F19: sizes are told apart, a path that loses packets is not taken for a narrow
// one, and a silent one for neither.
func TestFits(t *testing.T) {
	pass := func(most, loseFirst int) fate {
		padded := 0
		return func(_ int, b []byte) (time.Duration, bool) {
			if len(b) > packetLen {
				padded++
			}
			return 40 * time.Millisecond, len(b)+headersIPv4 <= most && (len(b) == packetLen || padded > loseFirst)
		}
	}
	for _, c := range []struct {
		name      string
		out, back fate
		size      int
		want      bool
		wantErr   error
		within    time.Duration
	}{
		{"passes", pass(1280, 0), pass(1280, 0), 1280, true, nil, 80 * time.Millisecond},
		{"too large", pass(1280, 0), pass(1500, 0), 1281, false, nil, time.Second},
		{"too large on the way back", pass(1500, 0), pass(1280, 0), 1281, false, nil, time.Second},
		{"two lost", pass(1500, 2), pass(1500, 0), 1500, true, nil, time.Second},
		{"silent", pass(0, 0), pass(1500, 0), 1280, false, ErrSilent, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := start(t, newNetwork(c.out, c.back), time.Minute)
				wait(2 * time.Second)
				before := time.Now()
				got, err := p.Fits(t.Context(), c.size)
				if took := time.Since(before); got != c.want || !errors.Is(err, c.wantErr) || err != nil && c.wantErr == nil {
					t.Errorf("got %v, %v after %v, want %v, %v", got, err, took, c.want, c.wantErr)
				} else if took > c.within && c.wantErr == nil {
					t.Errorf("took %v, want at most %v", took, c.within)
				}
				if s := p.Stats(); c.wantErr == nil && s.Lost != 0 {
					t.Errorf("got %+v: sizes that do not pass are not losses", s)
				}
				if len(p.padded) != 0 {
					t.Errorf("%d padded probes are left over", len(p.padded))
				}
			})
		})
	}
}

func TestFitsErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(delay(0), delay(0))
		p := start(t, n, time.Minute)
		wait(time.Second)
		for _, size := range []int{-1, headersIPv4 + packetLen - 1, 65536} {
			if fits, err := p.Fits(t.Context(), size); fits || err == nil {
				t.Errorf("%d bytes: got %v and no error", size, fits)
			}
		}
		n.near.refuse(syscall.EMSGSIZE)
		if fits, err := p.Fits(t.Context(), 1500); fits || err != nil {
			t.Errorf("more than the interface takes: got %v, %v, want false", fits, err)
		}
		n.near.refuse(nil)
		n.near.become(swallow)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if _, err := p.Fits(ctx, 1500); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the end of the context", err)
		}
	})
}

// Nothing that arrives makes the responder say more than it heard, nor anything to
// what is not a request.
func FuzzRespond(f *testing.F) {
	f.Add([]byte(nil))
	f.Add([]byte("slp"))
	f.Add(appendPacket(nil, request, 1, packetLen))
	f.Add(appendPacket(nil, request, 1<<63, 1400))
	f.Add(appendPacket(nil, answer, 1, packetLen))
	f.Add(appendPacket(nil, 3, 1, packetLen))
	f.Add(make([]byte, 1500))
	f.Fuzz(func(t *testing.T, b []byte) {
		kind, identity := parsePacket(b)
		synctest.Test(t, func(t *testing.T) {
			var said [][]byte
			n := newNetwork(delay(0), func(_ int, b []byte) (time.Duration, bool) { said = append(said, b); return 0, false })
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- Respond(ctx, n.far) }()
			n.near.WriteTo(b, nil)
			wait(0)
			cancel()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			switch {
			case kind != request && len(said) != 0:
				t.Errorf("%x was answered", b)
			case kind == request && (len(said) != 1 || len(said[0]) != len(b)):
				t.Errorf("%x was answered with %x", b, said)
			}
			for _, s := range said {
				if k, id := parsePacket(s); k != answer || id != identity {
					t.Errorf("%x was answered with %x", b, s)
				}
			}
		})
	})
}

// What arrives at a prober counts once, if it was asked for, and never more often
// than probes were sent.
func FuzzLedger(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3}, uint64(1))
	f.Add([]byte{0, 0, 0, 9, 9, 1}, uint64(1<<63))
	f.Fuzz(func(t *testing.T, steps []byte, random uint64) {
		var l ledger
		now := time.Unix(0, 0)
		identity := random
		for _, s := range steps {
			now = now.Add(time.Duration(s) * time.Millisecond)
			if s%2 == 0 {
				identity = l.send(now, random)
			} else {
				l.hear(now, identity+uint64(s>>4))
			}
		}
		l.expire(now)
		s := l.stats
		if s.Answered > s.Sent || s.Lost > s.Sent || s.Unanswered < 0 || uint64(s.Unanswered) > s.Lost || s.RTT < 0 || s.RTTVar < 0 {
			t.Errorf("got %+v", s)
		}
		if d := l.timeout(); d < timeoutLeast || d > timeoutMost {
			t.Errorf("timeout: got %v", d)
		}
	})
}

// TestUDP is the same over the kernel's loopback, in both families.
func TestUDP(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(address, func(t *testing.T) {
			far, err := net.ListenPacket("udp", address)
			if err != nil {
				t.Skip("needs this family: ", err)
			}
			defer far.Close()
			near, err := net.ListenPacket("udp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer near.Close()
			p, err := New(Options{Conn: near, Remote: far.LocalAddr().(*net.UDPAddr).AddrPort(), Interval: time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 2)
			go func() { done <- p.Run(ctx) }()
			go func() { done <- Respond(ctx, far) }()
			for limit := time.Now().Add(10 * time.Second); p.Stats().Answered < 20 && time.Now().Before(limit); {
				<-time.After(5 * time.Millisecond)
			}
			if s := p.Stats(); s.Answered < 20 || s.RTT <= 0 || s.RTT > time.Second {
				t.Errorf("got %+v, want at least 20 answers", s)
			}
			p.Pace(time.Hour)
			for size, want := range map[int]bool{1500: true, 9000: true} { // loopback's MTU is 65536
				if got, err := p.Fits(ctx, size); err != nil || got != want {
					t.Errorf("%d bytes: got %v, %v, want %v", size, got, err, want)
				}
			}
			cancel()
			for range 2 {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// A closed socket is the only thing that ends either end before its context.
func TestClosed(t *testing.T) {
	near, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(Options{Conn: near, Remote: netip.MustParseAddrPort("127.0.0.1:9"), Interval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 2)
	go func() { done <- p.Run(t.Context()) }()
	near.Close()
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Errorf("run: got %v, want %v", err, net.ErrClosed)
	}
	if err := Respond(t.Context(), near); !errors.Is(err, net.ErrClosed) {
		t.Errorf("respond: got %v, want %v", err, net.ErrClosed)
	}
	if _, err := New(Options{}); err == nil {
		t.Error("new without a socket: got no error")
	}
}
