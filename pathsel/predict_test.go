package pathsel

import (
	"math"
	"strings"
	"testing"
	"time"
)

var both = map[string]string{SCTP: "tuned", TCP: "bbr"}

// The table is read as it was measured, and between the columns by lines.
func TestMeasuredTable(t *testing.T) {
	for _, tt := range []struct {
		s       Scheme
		percent float64
		want    float64
	}{
		{Scheme{TCP, "cubic", 1}, 10, 398 / (959 * .9)},
		{Scheme{TCP, "bbr", 1}, 20, 519 / (959 * .8)},
		{Scheme{TCP, "bbr", 4}, 30, 404 / (959 * .7)},
		{Scheme{SCTP, "tuned", 1}, 0, 1},
		{Scheme{SCTP, "tuned", 1}, 7.5, (898/(959*.95) + 670/(959*.9)) / 2},
		{Scheme{SCTP, "tuned", 1}, 90, 16 / (959 * .5)},
		{Scheme{SCTP, "tuned", 2}, 10, (670/(959*.9) + 850/(959*.9)) / 2},
		{Scheme{TCP, "reno", 1}, 10, 398 / (959 * .9)},
		{Scheme{"udp", "", 1}, 10, 0},
	} {
		if got := measured(tt.s, tt.percent); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%v at %v %%: got %v, want %v", tt.s, tt.percent, got, tt.want)
		}
	}
}

// The estimate for numbers of carriers that were not measured comes near the
// rows that were.
func TestMeasuredExtrapolation(t *testing.T) {
	for _, r := range table {
		if r.carriers != 4 {
			continue
		}
		for _, percent := range []float64{10, 20, 30} {
			one, _ := carried(r.protocol, r.variant, 1, percent)
			four, _ := carried(r.protocol, r.variant, 4, percent)
			if got := 1 - math.Pow(1-one, 4); math.Abs(got-four) > 0.17 {
				t.Errorf("%s %s at %v %%: estimated %.2f, measured %.2f", r.protocol, r.variant, percent, got, four)
			}
		}
	}
}

// [MS] Algorithm 2 as a decision: the scheme that is predicted to do best, and
// only if it is worth it.
func TestSwitchProcess(t *testing.T) {
	for _, tt := range []struct {
		name     string
		loss     float64
		crowd    bool
		current  Scheme
		variants map[string]string
		want     Scheme
	}{
		{"no loss: stay", 0, false, Scheme{SCTP, "tuned", 1}, both, Scheme{SCTP, "tuned", 1}},
		{"10 %: SCTP falls behind", 10, false, Scheme{SCTP, "tuned", 1}, both, Scheme{TCP, "bbr", 1}},
		{"20 %: four connections carry more than four associations", 20, false, Scheme{SCTP, "tuned", 1}, both, Scheme{TCP, "bbr", 4}},
		{"20 % on one BBR connection: more of them", 20, false, Scheme{TCP, "bbr", 1}, both, Scheme{TCP, "bbr", 4}},
		{"30 %: four connections carry more", 30, false, Scheme{SCTP, "tuned", 4}, both, Scheme{TCP, "bbr", 4}},
		{"40 %: still", 40, false, Scheme{TCP, "bbr", 4}, both, Scheme{TCP, "bbr", 4}},
		{"10 % on one BBR connection: no gain worth it", 10, false, Scheme{TCP, "bbr", 1}, both, Scheme{TCP, "bbr", 1}},
		{"kernel without BBR, 10 %: associations", 10, false, Scheme{SCTP, "tuned", 1}, map[string]string{SCTP: "tuned", TCP: "cubic"}, Scheme{SCTP, "tuned", 4}},
		{"kernel without SCTP", 20, false, Scheme{TCP, "bbr", 1}, map[string]string{TCP: "bbr"}, Scheme{TCP, "bbr", 4}},
		{"loss is gone: back to one", 0, false, Scheme{TCP, "bbr", 4}, both, Scheme{TCP, "bbr", 1}},
		{"congestion: the protocol stays, one carrier", 20, true, Scheme{SCTP, "tuned", 1}, both, Scheme{SCTP, "tuned", 1}},
		{"congestion: several become one", 20, true, Scheme{TCP, "bbr", 4}, both, Scheme{TCP, "bbr", 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := NewPredictor(false).Answer(t0, Condition{Path: "a", Loss: tt.loss, Congestion: tt.crowd, Why: "as the test says"}, tt.current, tt.variants)
			if got.Scheme != tt.want || got.Change != (tt.want != tt.current) || got.Reason == "" {
				t.Errorf("got %v (change %v: %s), want %v", got.Scheme, got.Change, got.Reason, tt.want)
			}
		})
	}
}

// Applied again, an answer stands: nothing goes to and fro at one loss rate.
func TestSwitchProcessSettles(t *testing.T) {
	for loss := 0.0; loss <= 60; loss += 0.5 {
		for _, start := range []Scheme{{SCTP, "tuned", 1}, {SCTP, "tuned", 4}, {TCP, "bbr", 1}, {TCP, "bbr", 3}} {
			p := NewPredictor(false)
			c := Condition{Path: "a", Loss: loss, Why: "by chance"}
			first := p.Answer(t0, c, start, both)
			if second := p.Answer(t0, c, first.Scheme, both); second.Change {
				t.Errorf("loss %v: %v, then %v, then %v", loss, start, first.Scheme, second.Scheme)
			}
		}
	}
}

// Chance alone adds no carriers, and says so only where certainty would.
func TestSwitchProcessDoubts(t *testing.T) {
	one := Scheme{TCP, "bbr", 1}
	for _, tt := range []struct {
		loss, doubt      float64
		change, doubtful bool
	}{{10, 4, false, false}, {12, 4, false, false}, {15, 4, false, true}, {15, 1, true, false}, {20, 5, true, false}} {
		got := NewPredictor(false).Answer(t0, Condition{Path: "a", Loss: tt.loss, Doubt: tt.doubt, Why: "by chance"}, one, both)
		if got.Change != tt.change || got.Doubtful != tt.doubtful {
			t.Errorf("loss %v, give or take %v: got %+v", tt.loss, tt.doubt, got)
		}
	}
}

// What a scheme is seen to carry counts more than the table: a protocol that
// disappoints is left again, once.
func TestSwitchProcessLearns(t *testing.T) {
	p := NewPredictor(false)
	four := Scheme{SCTP, "tuned", 4}
	p.Learn(t0, "a", four, 0, 1e6)
	c := Condition{Path: "a", Loss: 30, RTT: 4 * time.Millisecond, Why: "by chance"}
	p.Learn(t0, "a", four, 30, 0.35e6)
	first := p.Answer(t0, c, four, both)
	if half := p.share(t0, c, four); first.Scheme.Protocol != TCP || math.Abs(half-0.5) > 1e-9 {
		t.Fatalf("got %+v and a share of %v before, want tcp, and half", first, half)
	}
	for n := 1; n <= mostCarriers; n++ {
		p.Learn(t0, "a", Scheme{TCP, "bbr", n}, 30, 0.1e6) // a shaper hates TCP
	}
	if got := p.Answer(t0, c, first.Scheme, both); got.Scheme.Protocol != SCTP {
		t.Errorf("after tcp carried a seventh: %+v", got)
	}
	if got := p.Answer(t0.Add(learnedFor), c, four, both); got.Scheme.Protocol != TCP {
		t.Errorf("ten minutes later the table counts again: %+v", got)
	}
}

// Long round trips make loss worse for windows that shrink, not for BBR.
func TestSwitchProcessRoundTrip(t *testing.T) {
	p := NewPredictor(false)
	p.Learn(t0, "a", Scheme{SCTP, "tuned", 1}, 0, 1e6)
	near := p.share(t0, Condition{Path: "a", Loss: 5, RTT: 4 * time.Millisecond}, Scheme{SCTP, "tuned", 1})
	far := p.share(t0, Condition{Path: "a", Loss: 5, RTT: 200 * time.Millisecond}, Scheme{SCTP, "tuned", 1})
	if near < 0.8 || far > 0.1 {
		t.Errorf("at 4 ms %.2f, at 200 ms %.2f, want over 0.8 and under 0.1", near, far)
	}
	bbr := p.share(t0, Condition{Path: "a", Loss: 5, RTT: 200 * time.Millisecond}, Scheme{TCP, "bbr", 1})
	if bbr < 0.9 {
		t.Errorf("bbr at 200 ms %.2f, want over 0.9", bbr)
	}
}

// [MS] Algorithm 2 as printed: to the other protocol, whichever it is.
func TestSwitchProcessPaper(t *testing.T) {
	p := NewPredictor(Paper().Toggle)
	s := Scheme{SCTP, "tuned", 1}
	for _, want := range []string{TCP, SCTP, TCP} {
		a := p.Answer(t0, Condition{Path: "a", Loss: 6}, s, both)
		if s = a.Scheme; s.Protocol != want || s.Carriers != 1 || !a.Change {
			t.Errorf("got %+v, want %s", a, want)
		}
	}
	if a := p.Answer(t0, Condition{}, Scheme{TCP, "bbr", 1}, map[string]string{TCP: "bbr"}); a.Change || !strings.Contains(a.Reason, "cannot be used") {
		t.Errorf("without SCTP: %+v", a)
	}
}

// Loss while the round trip stands well above its minimum is congestion.
func TestCongestion(t *testing.T) {
	ms := time.Millisecond
	for _, tt := range []struct {
		name     string
		rtt      func(i int) time.Duration
		lossAt   func(i int) bool
		carriers int
		rate     float64
		want     bool
	}{
		{"a queue fills and overflows", func(i int) time.Duration { return 4*ms + time.Duration(i%20)*4*ms }, func(i int) bool { return i%20 > 16 }, 1, 1e6, true},
		{"loss by chance, no queue", func(i int) time.Duration { return 4*ms + time.Duration(i%3)*ms }, func(i int) bool { return i%2 == 0 }, 1, 1e6, false},
		{"loss by chance, four carriers' own queue", func(i int) time.Duration { return 4*ms + time.Duration(i%5)*8*ms }, func(i int) bool { return i%2 == 0 }, 4, 1e6, false},
		{"four carriers fill the queue", func(i int) time.Duration { return 4*ms + time.Duration(i%20)*5*ms }, func(i int) bool { return i%20 > 16 }, 4, 1e6, true},
		{"long link, loss by chance", func(i int) time.Duration { return 300*ms + time.Duration(i%10)*10*ms }, func(i int) bool { return i%2 == 0 }, 1, 1e6, false},
		{"no loss yet", func(i int) time.Duration { return 4 * ms }, func(int) bool { return false }, 1, 1e6, true},
		{"no round trip known", func(i int) time.Duration { return 0 }, func(int) bool { return true }, 1, 1e6, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, now := NewCongestion(), t0
			for i := range 400 {
				now = now.Add(50 * ms)
				counts := Counts{Sent: 30}
				if tt.lossAt(i) {
					counts.Lost = 3
				}
				c.Observe(now, tt.rtt(i), counts)
			}
			if got, why := c.Is(now, tt.carriers, tt.rate); got != tt.want || why == "" {
				t.Errorf("got %v (%s), want %v", got, why, tt.want)
			}
		})
	}
}

// [HT]: a path that falls to a fifth of its rate and loses nothing is left; in
// the paper's profile it is not.
func TestSlowPath(t *testing.T) {
	for _, p := range []Profile{Default(), Paper()} {
		s := NewSlowness(p.Slow)
		for i := range 10 {
			s.Full(t0.Add(time.Duration(i)*time.Second), "if0", 600e3)
		}
		at := t0.Add(12 * time.Second)
		s.Full(at, "if0", 124e3)
		got, want := s.Points(at, "if0", []string{"if1"}), p.Slow.Window > 0
		if (got > 50) != want {
			t.Errorf("%s: %v points, slow %v", p.Name, got, want)
		}
	}
}

func TestSlowPathBounds(t *testing.T) {
	opt := Default().Slow
	s := NewSlowness(opt)
	s.Full(t0, "a", 600e3)
	for _, tt := range []struct{ rate, want float64 }{{600e3, 0}, {301e3, 0}, {150e3, 50}} {
		s.Full(t0, "a", tt.rate)
		if got := s.Points(t0, "a", []string{"b"}); math.Abs(got-tt.want) > 0.1 {
			t.Errorf("rate %v: %v points, want %v", tt.rate, got, tt.want)
		}
	}
	s.Full(t0, "b", 100e3)
	if got := s.Points(t0, "a", []string{"b"}); got != 0 {
		t.Errorf("%v points although the other path is known to be slower still", got)
	}
	if got := s.Points(t0, "a", nil); got != 0 {
		t.Errorf("%v points without another path", got)
	}
	s.Light(t0, "c", 50*time.Millisecond)
	for _, tt := range []struct {
		rtt  time.Duration
		want float64
	}{{150 * time.Millisecond, 0}, {249 * time.Millisecond, 0}, {400 * time.Millisecond, 50}} {
		s.Light(t0, "c", tt.rtt)
		if got := s.Points(t0, "c", nil); math.Abs(got-tt.want) > 0.1 {
			t.Errorf("round trip %v: %v points, want %v", tt.rtt, got, tt.want)
		}
	}
	if got := s.Points(t0.Add(opt.Window+time.Second), "c", nil); got != 0 {
		t.Errorf("%v points after the window", got)
	}
}
