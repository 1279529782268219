package ns2

import (
	"errors"
	"math"
	"os/exec"
	"strings"
	"testing"
	"time"

	"sluice/lab/flow"
)

// links is a piece of a trace of ht-single.tcl, with a lost packet added.
const links = `num_nodes is set 5
+ 0.5 1 3 sctp 56 ------- 2 1.0 6.0 -1 2
r 0.54009 4 6 sctp 56 ------- 2 1.0 6.0 -1 2
+ 0.65 1 3 sctp 1500 ------- 2 1.0 6.0 -1 7
- 0.65 1 3 sctp 1500 ------- 2 1.0 6.0 -1 7
r 0.67 1 3 sctp 1500 ------- 2 1.0 6.0 -1 7
+ 0.66 1 3 sctp 1500 ------- 2 1.0 6.0 -1 8
d 0.68 3 4 sctp 1500 ------- 2 1.0 6.0 -1 8
r 0.71 4 6 sctp 1500 ------- 2 1.0 6.0 -1 7
+ 1.95 1 3 sctp 1500 ------- 2 1.0 6.0 -1 9
`

// chain is a piece of a trace of ms-chain.tcl.
const chain = `INITIALIZE THE LIST xListHead
+ 0.11 0 1 tcp 1500 ------- 0 0.0.0.0 1.0.4.0 1 61
r 0.19999 _6_ AGT  --- 61 tcp 1500 [13a 4 3 800] ------- [0:0 4194308:0 25 4194308] [1 0] 4 0
s 0.2 _6_ AGT  --- 62 ack 40 [0 0 0 0] ------- [4194308:0 0:0 32 0] [1 0] 0 0
D 0.21 _5_ IFQ  END 63 tcp 1500 [13a 4 3 800] ------- [0:0 4194308:0 25 4194308] [1 0] 4 0
`

func TestReadTrace(t *testing.T) {
	trace, err := readTrace(strings.NewReader(links), place{sources: []string{"1"}, sinks: []string{"6"}}, 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for i, got := range trace.Total().Rates {
		want := 0.0
		if i == 7 {
			want = 14.6
		}
		if math.Abs(got-want) > 1e-9 {
			t.Errorf("slot %d: got %v KB/s, want %v", i, got, want)
		}
	}
	if trace.Sent != 3 || trace.Lost != 1 || math.Abs(trace.Loss()-1./3) > 1e-9 {
		t.Errorf("got %d sent and %d lost, want 3 and 1: the last may be under way", trace.Sent, trace.Lost)
	}
	if got := trace.Delay[7]; math.Abs(got-0.06) > 1e-9 || !math.IsNaN(trace.Delay[6]) {
		t.Errorf("delay: got %v and %v, want 0.06 and none", got, trace.Delay[6])
	}
	trace, err = readTrace(strings.NewReader(chain), place{sources: []string{"0"}, sinks: []string{"6"}, layer: "AGT"}, time.Second)
	if err != nil || trace.Sent != 1 || trace.Lost != 0 || math.Abs(trace.Total().Mean()-1.46) > 1e-9 {
		t.Errorf("chain: got %+v, %v", trace, err)
	}
}

func TestReadTraceRefuses(t *testing.T) {
	for _, c := range []struct{ trace, want string }{
		{"", "nothing in it"},
		{"can't read \"x\": no such variable\n", "nothing in it"},
		{"r 0.1 1 2\n", "it has 4 fields"},
		{"r 0.1 1 2 tcp 1500 ------- 2\n", "it has 8 fields"},
		{"r soon 1 2 tcp 1500 ------- 2 1.0 6.0 -1 2\n", "soon"},
		{"r 0.1 1 2 tcp much ------- 2 1.0 6.0 -1 2\n", "much"},
	} {
		_, err := readTrace(strings.NewReader(c.trace), place{sinks: []string{"2"}}, time.Second)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want %q in it", c.trace, err, c.want)
		}
	}
}

func FuzzReadTrace(f *testing.F) {
	f.Add(links)
	f.Add(chain)
	f.Add("r -1 1 6 tcp 1500 ------- 2 1.0 6.0 -1 2\n")
	f.Fuzz(func(t *testing.T, text string) {
		trace, err := readTrace(strings.NewReader(text), place{sinks: []string{"6"}}, time.Second)
		if err == nil && len(trace.Total().Rates) != int(time.Second/flow.Interval) {
			t.Errorf("got %d slots", len(trace.Total().Rates))
		}
	})
}

// TestScripts runs each script for a short time.
func TestScripts(t *testing.T) {
	if _, err := exec.LookPath("ns"); err != nil {
		t.Skip("needs ns 2.35 (apt-get install ns2): make test installs it")
	}
	for _, protocol := range []string{TCPDefault, TCP, SCTP, SCTPDefault} {
		trace, err := HTSingle(t.Context(), protocol, 1, 5, 1, 2*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		// The bottleneck is 1.7 Mbit/s, 212 KB/s.
		if got := trace.Total().Mean(); got < 10 || got > 212 {
			t.Errorf("single path, %s: got %v KB/s", protocol, got)
		}
		if d := trace.Delay[15]; !(d > 0.045 && d < 0.2) {
			t.Errorf("single path, %s: delay of %v s", protocol, d)
		}
	}
	native, err := HTMulti(t.Context(), SCTP, 1, 8*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	switched, err := HTMulti(t.Context(), MSSCTP, 1, 8*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if got := native.Paths[1].Mean(); got != 0 {
		t.Errorf("native SCTP left a path that loses nothing: %v KB/s on if1", got)
	}
	if got := switched.Paths[1].From(7 * time.Second).Mean(); got < 500 {
		t.Errorf("after the primary was set: got %v KB/s on if1, want 600", got)
	}
	for _, c := range []struct {
		scheme string
		losses []float64
		least  float64
	}{{TCP, []float64{0}, 900}, {SCTP, []float64{0}, 900}, {TCPDefault, []float64{.1}, 10}, {SCTP, []float64{.1, 0}, 100}, {MSSCTP, []float64{.3, 0}, 600}} {
		trace, err := PER(t.Context(), c.scheme, c.losses, 1, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if got := trace.Total().From(PEROnset).Mean(); got < c.least || got > 1000 {
			t.Errorf("%s at %v: got %v KB/s, want at least %v", c.scheme, c.losses, got, c.least)
		}
	}
	// Routes take 20 s to form.
	chain, err := MSChain(t.Context(), TCP, 0, 1, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if got := chain.Total().From(50 * time.Second).Mean(); got < 40 || got > 120 {
		t.Errorf("chain without errors: got %v KB/s", got)
	}
	// SCTP sends no data before a heartbeat on each chain is answered, and asks with
	// growing pauses while there are no routes.
	two, err := MSChain(t.Context(), MSSCTP, 0, 1, 2*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if got := two.Total().From(105 * time.Second).Mean(); got < 40 || got > 120 {
		t.Errorf("two chains without errors: got %v KB/s", got)
	}
	if _, err := HTMulti(t.Context(), "pigeon\"", 1, time.Second); err == nil || errors.Is(err, ErrNoSimulator) {
		t.Errorf("unknown protocol: got %v, want what ns says", err)
	}
}
