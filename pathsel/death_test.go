package pathsel

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	ms := time.Millisecond
	ago := func(d time.Duration) time.Time { return t0.Add(-d) }
	for _, tt := range []struct {
		name string
		s    Signs
		want Life
	}{
		{"idle, answered", Signs{RTT: 50 * ms, Heard: ago(10 * time.Second), Answers: true}, Alive},
		{"under load, acknowledged", Signs{RTT: 50 * ms, Heard: ago(10 * ms), Waiting: 60 * ms, Answers: true}, Alive},
		{"one probe missed", Signs{RTT: 50 * ms, Heard: ago(time.Minute), Unanswered: 1, Answers: true}, Suspect},
		{"data waits, nothing heard", Signs{RTT: 50 * ms, Heard: ago(200 * ms), Waiting: 200 * ms, Answers: true}, Suspect},
		{"data waits behind a lost segment, others are acknowledged", Signs{RTT: 50 * ms, Heard: ago(20 * ms), Waiting: 400 * ms, Answers: true}, Alive},
		{"three probes missed, idle", Signs{RTT: 50 * ms, Heard: ago(time.Minute), Unanswered: 3, Answers: true}, Suspect},
		{"three probes missed under load", Signs{RTT: 50 * ms, Heard: ago(400 * ms), Waiting: 400 * ms, Unanswered: 3, Answers: true}, Dead},
		{"four probes missed", Signs{RTT: 50 * ms, Heard: ago(time.Minute), Unanswered: 4, Answers: true}, Dead},
		{"four probes missed, but data is acknowledged", Signs{RTT: 50 * ms, Heard: ago(20 * ms), Unanswered: 9, Answers: true}, Suspect},
		{"never answered (F16)", Signs{Unanswered: 4}, Dead},
		{"probes are dropped (F20), data is acknowledged", Signs{RTT: 50 * ms, Heard: ago(30 * ms), Unanswered: 99}, Suspect},
		{"probes are dropped (F20), data waits", Signs{RTT: 50 * ms, Heard: ago(1100 * ms), Waiting: 1100 * ms}, Dead},
		{"round trip unknown", Signs{Heard: ago(900 * ms), Waiting: 900 * ms}, Alive},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, reason := Judge(t0, tt.s); got != tt.want || reason == "" {
				t.Errorf("got %v (%s), want %v", got, reason, tt.want)
			}
		})
	}
}

// tick is how often who asks Judge does so.
const tick = 50 * time.Millisecond

// radio is a path for the simulation: frames at a steady pace, acknowledged a
// round trip later, resent after a loss; probes as Judge wants them.
type radio struct {
	r        *rand.Rand
	loss     float64
	rtt      func() time.Duration
	diedAt   time.Time // zero: it lives
	load     bool
	idlePace time.Duration

	srtt, rttvar, timeout time.Duration
	frames                []flight // unacknowledged, oldest first
	probes                []flight
	lastProbe             time.Time
	heard                 time.Time
	unanswered            int
	suspected             int
}

type flight struct {
	sent, done time.Time // done: when the acknowledgement is here; zero: lost
	overdue    bool
}

func (x *radio) send(now time.Time) flight {
	f := flight{sent: now}
	rtt := x.rtt()
	if x.r.Float64() >= x.loss && (x.diedAt.IsZero() || now.Add(rtt).Before(x.diedAt)) {
		f.done = now.Add(rtt)
	}
	return f
}

func (x *radio) measure(rtt time.Duration) {
	if x.srtt == 0 {
		x.srtt, x.rttvar = rtt, rtt/2
	}
	x.rttvar += ((rtt - x.srtt).Abs() - x.rttvar) / 4
	x.srtt += (rtt - x.srtt) / 8
	x.timeout = max(100*time.Millisecond, x.srtt+4*x.rttvar)
}

// step moves on to now and judges.
func (x *radio) step(now time.Time) (Life, string) {
	if x.load {
		f := x.send(now)
		if f.done.IsZero() && x.diedAt.IsZero() { // sent again after the transport's timeout
			again := x.send(now.Add(x.srtt + 200*time.Millisecond))
			for again.done.IsZero() {
				again = x.send(again.sent.Add(400 * time.Millisecond))
			}
			f.done = again.done
		}
		x.frames = append(x.frames, f)
	}
	head := true // acknowledgements are in order: one loss holds the others up
	var waiting time.Duration
	kept := x.frames[:0]
	for _, f := range x.frames {
		if head && !f.done.IsZero() && !f.done.After(now) {
			x.heard = now
			continue
		}
		if head {
			waiting, head = now.Sub(f.sent), false
		}
		kept = append(kept, f)
	}
	x.frames = kept
	open := x.probes[:0]
	for _, p := range x.probes {
		switch {
		case !p.done.IsZero() && !p.done.After(now):
			x.heard, x.unanswered = now, 0
			x.measure(p.done.Sub(p.sent))
			continue
		case !p.overdue && now.Sub(p.sent) > x.timeout:
			p.overdue = true
			x.unanswered++
		}
		if now.Sub(p.sent) < 5*time.Second {
			open = append(open, p)
		}
	}
	x.probes = open
	life, reason := Judge(now, Signs{RTT: x.srtt, RTTVar: x.rttvar, Waiting: waiting, Heard: x.heard, Answers: true, Unanswered: x.unanswered})
	pace := x.idlePace
	if life != Alive {
		pace = 80 * time.Millisecond
		x.suspected++
	}
	// The prober has a clock of its own, and sends at once when the pace says
	// that it is late.
	if at := x.lastProbe.Add(pace); at.Before(now) {
		x.lastProbe = now
		x.probes = append(x.probes, x.send(now))
	}
	for at := x.lastProbe.Add(pace); at.Before(now.Add(tick)); at = at.Add(pace) {
		x.lastProbe = at
		x.probes = append(x.probes, x.send(at))
	}
	return life, reason
}

func newRadio(seed uint64, loss float64, rtt func(*rand.Rand) time.Duration) *radio {
	r := rand.New(rand.NewPCG(seed, 4))
	x := &radio{r: r, loss: loss, idlePace: 15 * time.Second, timeout: time.Second, heard: t0, lastProbe: t0}
	x.rtt = func() time.Duration { return rtt(r) }
	for range 50 {
		x.measure(x.rtt())
	}
	return x
}

// Silent death under load is declared within 0.6 s at round trips up to 100 ms,
// within 1.5 s at 500 ms, whatever instant it comes at.
func TestSilentDeathUnderLoad(t *testing.T) {
	for _, tt := range []struct {
		rtt, jitter, want time.Duration
	}{
		{4 * time.Millisecond, 2 * time.Millisecond, 600 * time.Millisecond},
		{40 * time.Millisecond, 10 * time.Millisecond, 600 * time.Millisecond},
		{90 * time.Millisecond, 20 * time.Millisecond, 600 * time.Millisecond},
		{480 * time.Millisecond, 40 * time.Millisecond, 1500 * time.Millisecond},
	} {
		var worst time.Duration
		for seed := range uint64(60) {
			x := newRadio(seed, 0.01, func(r *rand.Rand) time.Duration { return tt.rtt + time.Duration(r.Int64N(int64(tt.jitter))) })
			x.load = true
			x.diedAt = t0.Add(20*time.Second + time.Duration(seed)*7*time.Millisecond)
			now := t0
			for life := Alive; life != Dead; life, _ = x.step(now) {
				if now = now.Add(tick); now.Sub(x.diedAt) > 10*time.Second {
					t.Fatalf("round trip %v, seed %d: never declared", tt.rtt, seed)
				}
			}
			if now.Before(x.diedAt) {
				t.Fatalf("round trip %v, seed %d: declared dead %v before it died", tt.rtt, seed, x.diedAt.Sub(now))
			}
			worst = max(worst, now.Sub(x.diedAt))
		}
		t.Logf("round trip %v to %v: declared within %v", tt.rtt, tt.rtt+tt.jitter, worst)
		if worst > tt.want {
			t.Errorf("round trip %v: declared after %v, want %v", tt.rtt, worst, tt.want)
		}
	}
}

// No false alarm in an hour of round trips between 20 and 120 ms and 2 % of
// loss, idle and under load.
func TestNoFalseAlarm(t *testing.T) {
	for _, load := range []bool{true, false} {
		for seed := range uint64(5) {
			x := newRadio(seed, 0.02, func(r *rand.Rand) time.Duration {
				return time.Duration(20+r.IntN(101)) * time.Millisecond
			})
			x.load = load
			for i := range time.Hour / tick {
				if life, reason := x.step(t0.Add(time.Duration(i) * tick)); life == Dead {
					t.Fatalf("load %v, seed %d: dead after %d s: %s", load, seed, i/20, reason)
				}
			}
			if seed == 0 {
				t.Logf("load %v: suspected for %.0f s of the hour", load, (time.Duration(x.suspected) * tick).Seconds())
			}
		}
	}
}
