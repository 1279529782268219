package collector_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/reading"
	"sluice/uplink"
	"sluice/uplink/carriertest"
	"sluice/uplink/wire"
)

// gate speaks the protocol by hand.
type gate struct {
	t    *testing.T
	end  *carriertest.End
	in   *wire.Reader
	pack *wire.Compressor
	rude bool // being cut off while writing is expected
}

// knock opens a carrier and says hello; change may spoil it.
func knock(t *testing.T, far *far, change func(*wire.Hello)) *gate {
	t.Helper()
	near, remote := carriertest.Pipe(carriertest.Link{Delay: time.Millisecond}, "collector", gateway)
	far.ln.carriers <- remote
	pack, err := wire.NewCompressor()
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{t: t, end: near, in: wire.NewReader(near, wire.MaxControl), pack: pack}
	h := wire.Hello{Version: wire.Version, Gateway: gateway, Session: wire.SessionID{1}, Epoch: 77, Carrier: "memory", Keepalive: 60_000}
	if change != nil {
		change(&h)
	}
	if _, err := near.Write(wire.AppendHello(nil, h)); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *gate) next() (wire.Type, []byte) {
	g.t.Helper()
	g.end.SetReadDeadline(time.Now().Add(time.Minute))
	typ, body, err := g.in.Next()
	if err != nil {
		g.t.Fatalf("next message: %v", err)
	}
	return typ, body
}

func (g *gate) welcome() wire.Welcome {
	g.t.Helper()
	typ, body := g.next()
	w, err := wire.DecodeWelcome(body)
	if typ != wire.TypeWelcome || err != nil {
		g.t.Fatalf("type %d, %v, want a welcome", typ, err)
	}
	return w
}

func (g *gate) write(msg []byte) {
	g.t.Helper()
	packed, err := g.pack.Compress(msg)
	if err != nil {
		g.t.Fatal(err)
	}
	if _, err := g.end.Write(packed); err != nil && !g.rude {
		g.t.Fatal(err)
	}
}

// send sends live readings first to last in one frame that follows prev.
func (g *gate) send(prev, first, last uint64) {
	g.t.Helper()
	var rs []reading.Reading
	for seq := first; seq <= last; seq++ {
		rs = append(rs, value(reading.Live, seq))
	}
	g.write(wire.AppendData(nil, wire.Data{Lane: reading.Live, Prev: prev, Through: last, Segments: []reading.Segment{
		{First: first, Count: len(rs), Data: reading.AppendBatch(nil, rs)}}}))
}

// acked reads acks until the live lane's is at least durable, and returns it.
func (g *gate) acked(durable uint64) wire.LaneAck {
	g.t.Helper()
	for {
		typ, body := g.next()
		a, err := wire.DecodeAck(body)
		if typ != wire.TypeAck || err != nil {
			g.t.Fatalf("type %d, %v, want an ack", typ, err)
		}
		for _, l := range a.Lanes {
			if l.Lane == reading.Live && l.Durable >= durable {
				return l
			}
		}
	}
}

func TestHelloRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*wire.Hello)
		want   wire.Code
	}{
		{"another's name", func(h *wire.Hello) { h.Gateway = "gw-2" }, wire.CodeIdentity},
		{"no version", func(h *wire.Hello) { h.Version = 0 }, wire.CodeVersion},
	} {
		synctest.Test(t, func(t *testing.T) {
			far := startCollector(t, newOutput("a"))
			defer far.stop()
			g := knock(t, far, c.change)
			typ, body := g.next()
			r, err := wire.DecodeReject(body)
			if typ != wire.TypeReject || err != nil || r.Code != c.want || r.Reason == "" {
				t.Errorf("%s: got type %d, %+v, %v, want code %d with a reason", c.name, typ, r, err, c.want)
			}
		})
	}
}

// A newer gateway is answered with the version that this collector speaks.
func TestHelloNewerVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := startCollector(t, newOutput("a"))
		defer far.stop()
		g := knock(t, far, func(h *wire.Hello) { h.Version = 9 })
		if got := g.welcome().Version; got != wire.Version {
			t.Errorf("version: got %d, want %d", got, wire.Version)
		}
		g.end.Close()
	})
}

// A peer that connects and says nothing, or falls silent later, is let go.
func TestSilentPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := startCollector(t, newOutput("a"))
		defer far.stop()
		near, remote := carriertest.Pipe(carriertest.Link{}, "collector", gateway)
		far.ln.carriers <- remote
		start := time.Now()
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("without a hello: got %v, want the end", err)
		}
		if took := time.Since(start); took > 15*time.Second {
			t.Errorf("without a hello the carrier lasted %v", took)
		}
		g := knock(t, far, nil) // keepalive of a minute
		g.welcome()
		start = time.Now()
		g.end.SetReadDeadline(time.Now().Add(time.Hour))
		_, err := g.end.Read(make([]byte, 1))
		if took := time.Since(start); !errors.Is(err, io.EOF) || took < 2*time.Minute || took > 4*time.Minute {
			t.Errorf("silent for %v: got %v, want the end after three minutes", took, err)
		}
	})
}

// Frames over two carriers at once, in any order, twice, and cut differently the
// second time, come out once and in order.
func TestTwoCarriersAtOnce(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 3))
			out := newOutput("a")
			far := startCollector(t, out)
			defer far.stop()
			gates := []*gate{knock(t, far, nil), knock(t, far, nil)}
			for _, g := range gates {
				g.welcome()
				go io.Copy(io.Discard, g.end) // acks
			}
			type cut struct{ prev, first, last uint64 }
			var cuts []cut
			gap := func(seq uint64) bool { return 100 <= seq && seq < 120 }
			for range 2 {
				for prev := uint64(0); prev < 400; {
					first := prev + 1
					if gap(first) {
						first = 120
					}
					last := first + uint64(rng.IntN(30))
					if first < 100 {
						last = min(last, 99)
					}
					last = min(last, 400)
					cuts = append(cuts, cut{prev, first, last})
					prev = last
				}
			}
			rng.Shuffle(len(cuts), func(i, j int) { cuts[i], cuts[j] = cuts[j], cuts[i] })
			for _, c := range cuts {
				gates[rng.IntN(2)].send(c.prev, c.first, c.last)
			}
			within(t, 5*time.Second, "all written", func() bool { return out.count(stream(reading.Live)) == 380 })
			synctest.Wait()
			out.check(t, stream(reading.Live), 400, gap)
			st := far.c.Stats()
			if l := st.Sessions[0].Lanes[reading.Live]; l.Duplicates != 380 || l.Held != 0 || l.Readings != 380 {
				t.Errorf("seed %d: %+v, want 380 readings, as many duplicates, none held", seed, l)
			}
			if st.Memory != 0 {
				t.Errorf("seed %d: %d bytes are still counted as held", seed, st.Memory)
			}
			for _, g := range gates {
				g.end.Close()
			}
		})
	}
}

// An ack names what came out of order, so that a sender knows what is missing.
func TestAckRanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newOutput("a")
		far := startCollector(t, out)
		defer far.stop()
		g := knock(t, far, nil)
		g.welcome()
		g.send(0, 1, 10)
		if got := g.acked(10); len(got.Received) != 0 {
			t.Errorf("in order: got ranges %v", got.Received)
		}
		g.send(20, 21, 30)
		g.send(40, 41, 50)
		var got wire.LaneAck
		for len(got.Received) < 2 {
			got = g.acked(10)
		}
		if want := []wire.Range{{First: 21, Last: 30}, {First: 41, Last: 50}}; !slices.Equal(got.Received, want) {
			t.Errorf("out of order: got %v, want %v", got.Received, want)
		}
		g.send(10, 11, 20)
		g.send(30, 31, 40)
		g.acked(50)
		out.check(t, stream(reading.Live), 50, nil)
		g.end.Close()
	})
}

// A new process of the gateway takes over; the old one's carrier is told why it
// ends. What the old one sent counts.
func TestNewerSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newOutput("a")
		far := startCollector(t, out)
		defer far.stop()
		old := knock(t, far, nil)
		old.welcome()
		old.send(0, 1, 10)
		old.acked(10)
		newer := knock(t, far, func(h *wire.Hello) { h.Session = wire.SessionID{2} })
		if got := newer.welcome().Lanes[reading.Live]; got.Durable != 10 || got.Received != 10 {
			t.Errorf("resume: got %+v, want 10", got)
		}
		typ, body := old.next()
		c, err := wire.DecodeClose(body)
		if typ != wire.TypeClose || err != nil || c.Code != wire.CodeSuperseded {
			t.Errorf("old carrier: got type %d, %+v, %v, want to be superseded", typ, c, err)
		}
		newer.send(5, 6, 20) // cut differently: 6 to 10 again
		newer.acked(20)
		out.check(t, stream(reading.Live), 20, nil)
		newer.end.Close()
	})
}

// A store created anew counts from 1 again.
func TestNewEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newOutput("a")
		far := startCollector(t, out)
		defer far.stop()
		g := knock(t, far, nil)
		g.welcome()
		g.send(0, 1, 10)
		g.acked(10)
		g.end.Close()
		g = knock(t, far, func(h *wire.Hello) { h.Epoch = 78 })
		if got := g.welcome().Lanes[reading.Live]; got.Durable != 0 {
			t.Errorf("resume in a new epoch: got %+v, want 0", got)
		}
		g.send(0, 1, 5)
		g.acked(5)
		s := stream(reading.Live)
		out.check(t, s, 10, nil)
		s.Epoch = 78
		out.check(t, s, 5, nil)
		g.end.Close()
	})
}

// A gateway that breaks the rules loses its carrier, with the reason, and harms
// nothing else.
func TestRulesBroken(t *testing.T) {
	for _, c := range []struct {
		name string
		send func(g *gate)
	}{
		{"window", func(g *gate) {
			for i := range uint64(1000) { // all behind a gap
				g.send(100+i*100, 101+i*100, 200+i*100)
			}
		}},
		{"frame", func(g *gate) { g.send(0, 1, 5000) }},
		{"message of a collector", func(g *gate) { g.write(wire.AppendDrain(nil)) }},
		{"malformed", func(g *gate) { g.write([]byte{3, byte(wire.TypeData), 9, 9}) }},
		{"not compressed", func(g *gate) { g.end.Write([]byte("GET / HTTP/1.1\r\n\r\n")) }},
	} {
		synctest.Test(t, func(t *testing.T) {
			out := newOutput("a")
			far := startCollector(t, out)
			far.stop()
			far.opt.Limits.Unacked, far.opt.Limits.MaxFrame = 20_000, 10_000
			far.start()
			defer far.stop()
			g := knock(t, far, nil)
			g.welcome()
			g.rude = true
			go c.send(g)
			g.end.SetReadDeadline(time.Now().Add(time.Minute))
			for {
				_, _, err := g.in.Next()
				if errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("%s: the carrier stays", c.name)
				}
				if err != nil {
					break
				}
			}
			g.end.Close()
			again := knock(t, far, nil)
			again.welcome()
			again.send(0, 1, 10)
			again.acked(10)
			out.check(t, stream(reading.Live), 10, nil)
			again.end.Close()
		})
	}
}

// An ack does not go to a carrier that died without a trace only because it
// brought the readings.
func TestAckOnLivingCarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newOutput("a")
		out.delay = 5 * time.Second
		far := startCollector(t, out)
		defer far.stop()
		dead := knock(t, far, nil)
		dead.welcome()
		dead.send(0, 1, 10)
		<-time.After(100 * time.Millisecond)
		dead.end.Cut()
		living := knock(t, far, nil)
		if got := living.welcome().Lanes[reading.Live]; got.Durable != 0 || got.Received != 10 {
			t.Errorf("resume: got %+v, want 10 in memory", got)
		}
		start := time.Now()
		living.acked(10)
		if took := time.Since(start); took > 6*time.Second {
			t.Errorf("the ack came after %v", took)
		}
		living.end.Close()
		dead.end.Close()
	})
}

// What came out of order takes no memory once the carriers that brought it have
// left, whatever ended them.
func TestHeldIsForgotten(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(t *testing.T, far *far, g *gate)
	}{
		{"the carrier ends", func(t *testing.T, far *far, g *gate) { g.end.Close() }},
		{"a new store", func(t *testing.T, far *far, g *gate) {
			again := knock(t, far, func(h *wire.Hello) { h.Epoch = 78 })
			again.welcome()
			again.end.Close()
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			far := startCollector(t, newOutput("a"))
			defer far.stop()
			g := knock(t, far, nil)
			g.welcome()
			g.send(100, 101, 200)
			synctest.Wait()
			<-time.After(100 * time.Millisecond)
			if far.c.Stats().Memory == 0 {
				t.Fatalf("%s: nothing is held", c.name)
			}
			c.end(t, far, g)
			within(t, time.Second, c.name, func() bool { return far.c.Stats().Memory == 0 })
		})
	}
}

// Out-of-order frames leave room for the ones that they wait for, however small
// the memory.
func TestHeldLeavesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newOutput("a")
		far := startCollector(t, out)
		far.stop()
		far.opt.Limits.Memory = 1000
		far.start()
		defer far.stop()
		a, b := knock(t, far, nil), knock(t, far, nil)
		a.welcome()
		b.welcome()
		a.rude = true
		a.send(10, 11, 400) // larger than all the memory
		<-time.After(100 * time.Millisecond)
		b.send(0, 1, 10)
		b.acked(10)
		b.end.Close()
		a.end.Close()
	})
}

// However many frames wait, the one they wait for is taken.
func TestHeldMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newOutput("a")
		far := startCollector(t, out)
		defer far.stop()
		g := knock(t, far, nil)
		g.welcome()
		go io.Copy(io.Discard, g.end)
		const most = 4096
		for i := range uint64(most) {
			g.send(1+i, 2+i, 2+i)
		}
		g.send(0, 1, 1)
		within(t, time.Minute, "all written", func() bool { return out.count(stream(reading.Live)) == most+1 })
		g.end.Close()
	})
}

// A gateway that pings once an hour, the longest there is, is not taken for
// silent in between.
func TestRarePings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		far := startCollector(t, newOutput("a"))
		defer far.stop()
		n := startUplink(q, func(o *uplink.Options) { o.Keepalive = time.Hour }, &path{link: carriertest.Link{Delay: 50 * time.Millisecond}, to: far.now.Load})
		defer n.stop()
		<-time.After(24 * time.Hour)
		if got := n.Stats().Retries; got != 0 {
			t.Errorf("%d reconnections in a day", got)
		}
	})
}

// ping says that a carrier lives.
func (g *gate) ping() {
	g.t.Helper()
	g.write(wire.AppendPing(nil, 1))
}

// An ack that was told to a carrier which is silent since is repeated on one that
// is heard from.
func TestAckRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newOutput("a")
		far := startCollector(t, out)
		defer far.stop()
		living, dead := knock(t, far, nil), knock(t, far, nil)
		living.welcome()
		dead.welcome()
		dead.send(0, 1, 10)
		within(t, time.Second, "written", func() bool { return out.count(stream(reading.Live)) == 10 })
		dead.end.Cut()
		<-time.After(200 * time.Millisecond)
		living.ping()
		start := time.Now()
		living.acked(10)
		if took := time.Since(start); took > 100*time.Millisecond {
			t.Errorf("the ack came after %v", took)
		}
		living.end.Close()
		dead.end.Close()
	})
}

// A carrier that died without a trace leaves the status once it missed its ping
// by a clear margin, while another one is heard from; alone it is given longer.
func TestSilentCarrierIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := startCollector(t, newOutput("a"))
		defer far.stop()
		living, dead := knock(t, far, nil), knock(t, far, nil) // keepalive of a minute
		living.welcome()
		dead.welcome()
		dead.end.Cut()
		carriers := func() int { return len(far.c.Stats().Sessions[0].Carriers) }
		start := time.Now()
		for carriers() == 2 && time.Since(start) < time.Hour {
			<-time.After(5 * time.Second)
			living.ping()
		}
		if took := time.Since(start); took < 80*time.Second || took > 110*time.Second {
			t.Errorf("silent for %v, and still in the status", took)
		}
		<-time.After(2 * time.Minute)
		if carriers() != 1 {
			t.Errorf("%d carriers: the last one must be given three minutes", carriers())
		}
		living.end.Close()
		dead.end.Close()
	})
}

// However many carriers a gateway opens, few are kept: those heard from.
func TestCarriersMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newOutput("a")
		far := startCollector(t, out)
		defer far.stop()
		first := knock(t, far, nil)
		first.welcome()
		go io.Copy(io.Discard, first.end)
		for range 40 {
			<-time.After(time.Millisecond)
			knock(t, far, nil).welcome()
			first.ping()
		}
		<-time.After(time.Second)
		if got := len(far.c.Stats().Sessions[0].Carriers); got > 16 {
			t.Errorf("%d carriers are kept, want at most 16", got)
		}
		first.send(0, 1, 10)
		within(t, time.Second, "written", func() bool { return out.count(stream(reading.Live)) == 10 })
	})
}

// Eight carriers that send the same again and again behind a gap make the
// collector hold it once, and none is taken for a rule breaker.
func TestHeldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newOutput("a")
		far := startCollector(t, out)
		far.stop()
		far.opt.Limits.Unacked = 20_000
		far.start()
		defer far.stop()
		var gates []*gate
		for range 8 {
			g := knock(t, far, nil)
			g.welcome()
			go io.Copy(io.Discard, g.end)
			gates = append(gates, g)
		}
		send := func(g *gate) {
			for i := range uint64(8) { // cut differently by each
				g.send(10+i*100, 11+i*100, 10+i*100+50)
				g.send(10+i*100+50, 10+i*100+51, 10+i*100+100)
			}
			g.send(10, 11, 200)
			g.send(400, 401, 810)
		}
		send(gates[0])
		<-time.After(100 * time.Millisecond)
		once := far.c.Stats().Memory
		for _, g := range gates[1:] {
			send(g)
		}
		<-time.After(100 * time.Millisecond)
		st := far.c.Stats()
		if once == 0 || st.Memory != once || len(st.Sessions[0].Carriers) != 8 {
			t.Errorf("held %d bytes, then %d, on %d carriers, want the same on 8", once, st.Memory, len(st.Sessions[0].Carriers))
		}
		gates[5].send(0, 1, 10)
		within(t, time.Second, "all written", func() bool { return out.count(stream(reading.Live)) == 810 })
		out.check(t, stream(reading.Live), 810, nil)
		for _, g := range gates {
			g.end.Close()
		}
	})
}

// While an output is slow, the gateway hears that its readings have come.
func TestReceipt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newOutput("a")
		out.delay = 5 * time.Second
		far := startCollector(t, out)
		defer far.stop()
		g := knock(t, far, nil)
		g.welcome()
		start := time.Now()
		g.send(0, 1, 10)
		got := g.acked(0)
		if took := time.Since(start); took > 200*time.Millisecond || got.Durable != 0 || !slices.Equal(got.Received, []wire.Range{{First: 1, Last: 10}}) {
			t.Errorf("after %v: got %+v, want a receipt for 1 to 10", took, got)
		}
		g.acked(10)
		if took := time.Since(start); took < 5*time.Second {
			t.Errorf("durable after %v", took)
		}
		g.end.Close()
	})
}

// A takeover is a warning, once, and the carriers that it ends say so in the log
// rather than what their sockets said.
func TestTakeoverIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer // slog writes to it under a lock
		far := startCollector(t, newOutput("a"))
		far.stop()
		far.opt.Logger = slog.New(slog.NewTextHandler(&log, nil))
		far.start()
		for range 2 {
			knock(t, far, nil).welcome()
		}
		newer := knock(t, far, func(h *wire.Hello) { h.Session = wire.SessionID{2} })
		newer.welcome()
		<-time.After(time.Second)
		newer.end.Close()
		far.stop()
		got := log.String()
		if strings.Count(got, "level=WARN") != 1 || !strings.Contains(got, "share a certificate") || strings.Contains(got, "closed network connection") {
			t.Errorf("log:\n%s", got)
		}
	})
}
