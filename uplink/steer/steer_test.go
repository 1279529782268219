package steer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/pathsel"
)

func wifi() *radio { return &radio{name: "wlan0", up: true} }
func cell() *radio { return &radio{name: "wwan1", up: true, metered: true, rtt: 80 * time.Millisecond} }

// in runs a scenario in a world of Wi-Fi and cellular.
func in(t *testing.T, profile pathsel.Profile, scenario func(w *world, wlan, wwan *radio)) {
	synctest.Test(t, func(t *testing.T) {
		wlan, wwan := wifi(), cell()
		w := start(t, profile, wlan, wwan)
		scenario(w, wlan, wwan)
	})
}

// loaded begins with SCTP over Wi-Fi, and load.
func (w *world) loaded() {
	w.t.Helper()
	w.await("sctp wlan0", 3*time.Second)
	w.set(func() { w.load = true })
	wait(5 * time.Second)
	w.gap()
}

// The association comes up over all paths, TCP stands by on each.
func TestStart(t *testing.T) {
	in(t, pathsel.Default(), func(w *world, wlan, wwan *radio) {
		took := w.await("sctp wlan0", 3*time.Second)
		wait(time.Second)
		w.mu.Lock()
		var names []string
		for _, s := range w.slots {
			names = append(names, fmt.Sprintf("%s %v %v", s.Name, s.Standby, s.carrier != nil))
		}
		plans := w.plans
		w.mu.Unlock()
		if got, want := strings.Join(names, ", "), "sctp false true, tcp wlan0 true true, tcp wwan1 true true"; got != want {
			t.Errorf("slots %q, want %q", got, want)
		}
		if took > time.Second || plans > 4 {
			t.Errorf("took %v and %d plans", took, plans)
		}
		if s := w.steer.Snapshot(); s.Underlay != "tunnel" || s.Reason == "" || !s.NextTry.IsZero() {
			t.Errorf("snapshot %+v", s)
		}
	})
}

// Promise 8: Wi-Fi dies without a word, under load. At round trips up to 100 ms
// data flows over cellular within a second, at 500 ms within two, whatever the
// instant and the protocol.
func TestSilentDeath(t *testing.T) {
	for _, tt := range []struct{ rtt, most time.Duration }{
		{4 * time.Millisecond, time.Second},
		{40 * time.Millisecond, time.Second},
		{100 * time.Millisecond, time.Second},
		{500 * time.Millisecond, 2 * time.Second},
	} {
		for _, protocol := range []string{pathsel.SCTP, pathsel.TCP} {
			t.Run(fmt.Sprint(protocol, " ", tt.rtt), func(t *testing.T) {
				var worst time.Duration
				for phase := range 6 {
					in(t, pathsel.Default(), func(w *world, wlan, wwan *radio) {
						w.set(func() { w.noSCTP, wlan.rtt, wwan.rtt = protocol == pathsel.TCP, tt.rtt, tt.rtt })
						protocol := protocol
						if tt.rtt >= longTrip {
							protocol = pathsel.TCP // SCTP is not for such paths
						}
						w.await(protocol+" wlan0", 8*time.Second)
						w.set(func() { w.load = true })
						wait(10*time.Second + time.Duration(phase)*17*time.Millisecond)
						w.gap()
						w.set(func() { wlan.dead = true })
						w.await(protocol+" wwan1", 3*time.Second)
						wait(2 * time.Second)
						worst = max(worst, w.gap())
						if s := w.status("wlan0"); s.Usable || s.Score != pathsel.Unreachable {
							t.Errorf("status %+v", s)
						}
					})
				}
				t.Logf("longest gap %v", worst)
				if worst > tt.most {
					t.Errorf("gap %v, want %v at most", worst, tt.most)
				}
			})
		}
	}
}

// The same when nothing was sent for long: the first reading finds it out.
func TestSilentDeathWhileIdle(t *testing.T) {
	in(t, pathsel.Default(), func(w *world, wlan, wwan *radio) {
		w.await("sctp wlan0", 3*time.Second)
		wait(70 * time.Second) // probes at their slowest
		w.set(func() { wlan.dead = true })
		wait(time.Millisecond)
		w.set(func() { w.load = true })
		w.await("sctp wwan1", 1500*time.Millisecond)
		wait(time.Second)
		if gap := w.gap(); gap > 1500*time.Millisecond {
			t.Errorf("gap %v, want 1.5 s at most", gap)
		}
	})
}

// A path that goes down with a word is left at once.
func TestLinkDown(t *testing.T) {
	in(t, pathsel.Default(), func(w *world, wlan, wwan *radio) {
		w.loaded()
		w.set(func() { wlan.up = false })
		if took := w.await("sctp wwan1", time.Second); took > 20*time.Millisecond {
			t.Errorf("left after %v", took)
		}
		if s := w.status("wlan0"); s.Reason != "no carrier" {
			t.Errorf("status %+v", s)
		}
	})
}

// Wi-Fi degrades to 30 % of loss: cellular carries within three seconds. When
// Wi-Fi is good again, and has been for long enough, it carries again.
func TestDegradesAndComesBack(t *testing.T) {
	in(t, pathsel.Default(), func(w *world, wlan, wwan *radio) {
		w.loaded()
		wait(2 * time.Minute) // the slot is at its longest
		w.set(func() { wlan.loss = 0.3 })
		took := w.await("tcp wwan1", 3*time.Second) // SCTP would retransmit over wlan0
		t.Logf("left after %v: %s", took, w.switches())
		if s := w.status("wlan0"); s.LossLast < 5 || s.Score < 5 || !s.Usable {
			t.Errorf("status %+v", s)
		}
		wait(time.Minute)
		w.want("tcp wwan1")
		w.set(func() { wlan.loss = 0 })
		w.await("sctp wlan0", 15*time.Minute)
		if w.count() > 3 { // the path, the protocol, and both back
			t.Errorf("switches: %s", w.switches())
		}
	})
}

// 5 % of loss, which [MS] Algorithm 3 does nothing about: Algorithm 1 does.
func TestFivePercent(t *testing.T) {
	for _, p := range []pathsel.Profile{pathsel.Default(), pathsel.Paper()} {
		t.Run(p.Name, func(t *testing.T) {
			in(t, p, func(w *world, wlan, wwan *radio) {
				w.loaded()
				w.set(func() { wlan.loss = 0.045 })
				wait(3 * time.Second)
				if p.Continual {
					w.want("sctp wwan1")
				} else {
					w.want("sctp wlan0")
				}
			})
		})
	}
}

// The path comes back after a silent death: it is on probation first, and the
// status counts.
func TestProbation(t *testing.T) {
	in(t, pathsel.Default(), func(w *world, wlan, wwan *radio) {
		w.loaded()
		w.set(func() { wlan.dead = true })
		w.await("sctp wwan1", time.Second)
		wait(20 * time.Second)
		w.set(func() { wlan.dead = false })
		seen := make(map[string]bool)
		back := time.Now()
		for w.way() != "sctp wlan0" && time.Since(back) < 5*time.Minute {
			seen[w.status("wlan0").Standing] = true
			wait(100 * time.Millisecond)
		}
		if took := time.Since(back); took < 15*time.Second || took > 2*time.Minute {
			t.Errorf("back after %v", took)
		}
		if !seen["recovering 3/5"] || !seen[""] {
			t.Errorf("shown: %v", seen)
		}
	})
}

// F17: link up 8 s, down 12 s, for ten minutes: at most one switch.
func TestFlapping(t *testing.T) {
	for _, silently := range []bool{false, true} {
		t.Run(fmt.Sprint("silently=", silently), func(t *testing.T) {
			in(t, pathsel.Default(), func(w *world, wlan, wwan *radio) {
				w.loaded()
				before, seen := w.count(), false
				for range 30 {
					w.set(func() { wlan.up, wlan.dead = silently, silently })
					wait(12 * time.Second)
					w.set(func() { wlan.up, wlan.dead = true, false })
					for range 80 {
						wait(100 * time.Millisecond)
						seen = seen || w.status("wlan0").Standing == "recovering 3/5"
					}
				}
				if got := w.count() - before; got != 1 || !seen {
					t.Errorf("%d switches, want 1; shown: %v: %s", got, seen, w.switches())
				}
			})
		})
	}
}

// F16: Wi-Fi is associated but dead at boot.
func TestDeadAtBoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wlan, wwan := wifi(), cell()
		wlan.dead = true
		w := start(t, pathsel.Default(), wlan, wwan)
		w.set(func() { w.load = true })
		w.await("sctp wwan1", 2*time.Second)
		wait(5 * time.Second)
		if gap := w.gap(); gap > 2*time.Second {
			t.Errorf("gap %v", gap)
		}
		if s := w.status("wlan0"); s.Usable || !strings.Contains(s.Reason, "unanswered, never heard of") {
			t.Errorf("status %+v", s)
		}
	})
}

// F20: SCTP is dropped from the start: TCP carries within 3 s, the reason is
// shown, and SCTP is tried again with growing waits, without touching what works.
func TestSCTPDroppedAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wlan, wwan := wifi(), cell()
		wlan.noUDP, wwan.noUDP = true, true // and UDP, with the probes
		w := start(t, pathsel.Default(), wlan, wwan)
		w.set(func() { w.load = true })
		wait(3 * time.Second)
		if gap := w.gap(); gap > time.Second {
			t.Errorf("gap at the start %v", gap)
		}
		w.want("tcp wlan0")
		var tries []time.Duration
		began := time.Now()
		next := time.Time{}
		for time.Since(began) < 30*time.Minute {
			s := w.steer.Snapshot()
			if !s.NextTry.IsZero() && s.NextTry != next {
				next = s.NextTry
				tries = append(tries, time.Until(next).Round(time.Second))
				if !strings.Contains(s.Reason, "SCTP did not join within 5s") {
					t.Errorf("reason %q", s.Reason)
				}
			}
			wait(200 * time.Millisecond)
		}
		if got, want := fmt.Sprint(tries), "[5s 10s 20s 40s 1m20s 2m40s 5m20s 10m0s 10m0s]"; got != want {
			t.Errorf("waits %v, want %v", got, want)
		}
		if gap := w.gap(); gap > 100*time.Millisecond || w.count() > 0 {
			t.Errorf("the attempts made a gap of %v and switches: %s", gap, w.switches())
		}
		w.set(func() { wlan.noUDP, wwan.noUDP = false, false })
		w.await("sctp wlan0", 11*time.Minute)
		if gap := w.gap(); gap > 100*time.Millisecond {
			t.Errorf("gap at the return of SCTP %v", gap)
		}
	})
}

// F20: UDP, and with it the tunnels and the probes, is dropped under load on every
// path: TCP is asked, lives, and carries.
func TestUDPDroppedUnderLoad(t *testing.T) {
	in(t, pathsel.Default(), func(w *world, wlan, wwan *radio) {
		w.loaded()
		w.set(func() { wlan.noUDP, wwan.noUDP = true, true })
		wait(5 * time.Second)
		if s := w.steer.Snapshot(); s.Protocol != pathsel.TCP {
			t.Errorf("got %q, want TCP; switches: %s", w.way(), w.switches())
		}
		if gap := w.gap(); gap > 3*time.Second {
			t.Errorf("gap %v, want 3 s at most", gap)
		}
	})
}

// F20: SCTP is dropped in the middle, while the paths live: TCP carries.
func TestSCTPDroppedUnderLoad(t *testing.T) {
	in(t, pathsel.Default(), func(w *world, wlan, wwan *radio) {
		w.loaded()
		w.set(func() { w.noSCTP = true })
		took := w.await("tcp wlan0", 3*time.Second)
		wait(time.Second)
		t.Logf("left after %v: %s", took, w.switches())
		if gap := w.gap(); gap > 2*time.Second {
			t.Errorf("gap %v", gap)
		}
		if s := w.steer.Snapshot(); !strings.Contains(s.Reason, "SCTP delivers nothing") || s.NextTry.IsZero() {
			t.Errorf("snapshot %+v", s)
		}
		w.set(func() { w.noSCTP = false })
		w.await("sctp wlan0", time.Minute)
	})
}

// [HT]: the path falls to a fifth of its rate and loses nothing. The appliance
// leaves it, the paper does not.
func TestSlowPath(t *testing.T) {
	for _, p := range []pathsel.Profile{pathsel.Default(), pathsel.Paper()} {
		t.Run(p.Name, func(t *testing.T) {
			in(t, p, func(w *world, wlan, wwan *radio) {
				w.loaded()
				wait(10 * time.Second)
				w.set(func() { wlan.rate, wlan.rtt = 200e3, 100*time.Millisecond })
				wait(10 * time.Second)
				if p.Slow.Window > 0 {
					w.want("sctp wwan1")
				} else {
					w.want("sctp wlan0")
				}
			})
		})
	}
}

// All paths die, and one comes back: the way stays, says so, and then follows.
func TestAllDeadAndBack(t *testing.T) {
	in(t, pathsel.Default(), func(w *world, wlan, wwan *radio) {
		w.loaded()
		w.set(func() { wlan.dead, wwan.dead = true, true })
		wait(30 * time.Second)
		for _, p := range w.steer.Snapshot().Paths {
			if p.Usable {
				t.Errorf("usable: %+v", p)
			}
		}
		before := w.count()
		wait(5 * time.Minute)
		if w.count() != before {
			t.Errorf("switches while nothing can be reached: %s", w.switches())
		}
		w.set(func() { wwan.dead = false })
		began := time.Now()
		for !strings.HasSuffix(w.way(), "wwan1") || !w.delivers() {
			if time.Since(began) > 10*time.Second {
				t.Fatalf("cellular is back for 10 s: %s, %s", w.way(), w.switches())
			}
			wait(50 * time.Millisecond)
		}
		t.Logf("delivers %v after cellular is back", time.Since(began))
	})
}

// An association is dialled over the chosen path first, and over dead ones last.
func TestDialsBestFirst(t *testing.T) {
	in(t, pathsel.Default(), func(w *world, wlan, wwan *radio) {
		w.loaded()
		w.set(func() { wlan.dead = true })
		w.await("sctp wwan1", time.Second)
		w.Abandon("sctp", errors.New("the test says so"))
		wait(2 * time.Second)
		w.steer.mu.Lock()
		addresses := w.steer.assocs["sctp"].addresses
		w.steer.mu.Unlock()
		if len(addresses) != 2 || addresses[0].Path != "wwan1" || addresses[1].Path != "wlan0" {
			t.Errorf("dialled over %v", addresses)
		}
	})
}

// F21: an address changes: the association follows; where the peer takes no such
// change, it is made anew, then the old one ends.
func TestAddressChanges(t *testing.T) {
	in(t, pathsel.Default(), func(w *world, wlan, wwan *radio) {
		w.loaded()
		w.set(func() { wwan.address++ })
		wait(15 * time.Second)
		w.mu.Lock()
		first := w.slots[0]
		if first.Name != "sctp" || first.carrier.addresses[1].Local != wwan.local() {
			t.Errorf("%s has %v, want the new address in it", first.Name, first.carrier.addresses)
		}
		w.mu.Unlock()
		w.set(func() { w.rigid, wwan.address = true, wwan.address+1 })
		wait(15 * time.Second)
		w.mu.Lock()
		var names []string
		for _, s := range w.slots {
			names = append(names, s.Name)
		}
		w.mu.Unlock()
		if got, want := strings.Join(names, ", "), "sctp r2, tcp wlan0, tcp wwan1"; got != want {
			t.Errorf("slots %q, want %q", got, want)
		}
		if gap := w.gap(); gap > 200*time.Millisecond {
			t.Errorf("gap %v", gap)
		}
		w.want("sctp wlan0")
	})
}

// A path whose tunnel comes up late joins the association then.
func TestTunnelComesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wlan, wwan := wifi(), cell()
		wlan.untunnel, wwan.untunnel = true, true
		w := start(t, pathsel.Default(), wlan, wwan)
		wait(2 * time.Second)
		w.want("tcp wlan0")
		if s := w.steer.Snapshot(); s.Reason != "SCTP: no path has an address for it" {
			t.Errorf("reason %q", s.Reason)
		}
		w.set(func() { wlan.untunnel, wwan.untunnel = false, false })
		w.await("sctp wlan0", time.Second)
	})
}

// At the start one tunnel takes longer than the other: the association waits for
// both and needs no renewal.
func TestAssociationWaitsForTunnels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wlan, wwan := wifi(), cell()
		wlan.untunnel = true
		w := start(t, pathsel.Default(), wlan, wwan)
		wait(time.Second)
		w.want("tcp wlan0")
		w.set(func() { wlan.untunnel = false })
		w.await("sctp wlan0", time.Second)
		w.mu.Lock()
		defer w.mu.Unlock()
		if n := len(w.slots[0].carrier.addresses); n != 2 {
			t.Errorf("the association has %d addresses, want 2", n)
		}
	})
}

// The only path that the association has dies while another association, which
// would have both, is on its way: TCP takes over as soon as the death is known.
func TestDeathWhileRenewing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wlan, wwan := wifi(), cell()
		wwan.untunnel = true
		w := startWith(t, pathsel.Default(), func(o *Options) {
			dial := o.DialSCTP
			o.DialSCTP = func(ctx context.Context, addresses []PathAddress) (Association, error) {
				if len(addresses) > 1 {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return dial(ctx, addresses)
			}
		}, wlan, wwan)
		w.await("sctp wlan0", addressFor+time.Second)
		w.set(func() { w.load, wwan.untunnel = true, false })
		renews := func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return slices.ContainsFunc(w.slots, func(s *slot) bool { return s.Name == "sctp r2" })
		}
		for range 1000 {
			if renews() {
				break
			}
			wait(10 * time.Millisecond)
			w.want("sctp wlan0")
		}
		w.gap()
		w.set(func() { wlan.dead = true })
		w.await("tcp wwan1", time.Second)
		if gap := w.gap(); gap > time.Second {
			t.Errorf("gap %v, want a second at most", gap)
		}
	})
}

// Without SCTP in the kernel everything goes over TCP, and it is said.
func TestNoSCTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startWith(t, pathsel.Default(), func(o *Options) { o.DialSCTP, o.NoSCTP = nil, "the kernel has no SCTP" }, wifi(), cell())
		wait(5 * time.Second)
		w.want("tcp wlan0")
		if s := w.steer.Snapshot(); s.Reason != "the kernel has no SCTP" || !s.NextTry.IsZero() {
			t.Errorf("snapshot %+v", s)
		}
	})
}

// The history keeps the last hundred switches.
func TestHistoryIsBounded(t *testing.T) {
	in(t, pathsel.Paper(), func(w *world, wlan, wwan *radio) {
		w.loaded()
		for i := range 130 {
			w.set(func() { wlan.up, wwan.up = i%2 == 0, i%2 == 1 })
			wait(2 * time.Second)
		}
		if got := w.count(); got != 100 {
			t.Errorf("%d switches kept, want 100", got)
		}
	})
}

// An hour of idleness: a metered path is probed once a minute, and nothing
// switches.
func TestIdleCost(t *testing.T) {
	in(t, pathsel.Default(), func(w *world, wlan, wwan *radio) {
		w.await("sctp wlan0", 3*time.Second)
		wait(10 * time.Second)
		w.mu.Lock()
		if got := w.slots[0].carrier.heartbeats; len(got) != 1 || got[wwan.remote().Addr()] != 5*time.Minute {
			t.Errorf("heartbeats %v, want five minutes on the metered path", got)
		}
		w.mu.Unlock()
		sent, count := wwan.probes.Stats().Sent, w.count()
		wait(time.Hour)
		if got := wwan.probes.Stats().Sent - sent; got > 61 {
			t.Errorf("%d probes in an hour on the metered path, want 60", got)
		}
		if w.count() != count {
			t.Errorf("switches: %s", w.switches())
		}
	})
}

// An idle Wi-Fi that loses one probe of a hundred is not left for it.
func TestIdleWithSomeLoss(t *testing.T) {
	in(t, pathsel.Default(), func(w *world, wlan, wwan *radio) {
		w.await("sctp wlan0", 3*time.Second)
		count := w.count()
		w.set(func() { wlan.loss, wwan.loss = 0.01, 0.01 })
		wait(3 * time.Hour)
		if w.count() != count {
			t.Errorf("switches: %s", w.switches())
		}
	})
}

// delivers says whether data arrived in the last moment.
func (w *world) delivers() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Since(w.lastTime) < 50*time.Millisecond
}

// Without TCP, SCTP follows the paths alone, and loss brings no other protocol.
func TestSCTPAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startWith(t, pathsel.Paper(), func(o *Options) { o.DialTCP = nil }, wifi(), cell())
		w.loaded()
		wlan := w.radio("wlan0")
		w.want("sctp wlan0")
		w.set(func() { wlan.loss = 0.2 })
		wait(2 * time.Minute)
		w.set(func() { wlan.dead = true })
		w.await("sctp wwan1", 5*time.Second)
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, s := range w.slots {
			if strings.HasPrefix(s.Name, "tcp") {
				t.Errorf("slot %s is planned", s.Name)
			}
		}
	})
}
