package ns2

import (
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"sluice/lab/flow"
)

// dataBytes separates packets with data from acknowledgements and handshakes.
const dataBytes = 200

// headerBytes are IP's and the transport's in the simulator's packets: 40 of TCP,
// and nearly as many of SCTP with one chunk.
const headerBytes = 40

// place is where a script's trace is read: data leaves by links from some nodes
// and arrives at others.
type place struct {
	sources []string // the nodes that data is enqueued at first; empty if every node of the trace is one
	sinks   []string // the nodes that it arrives at, one a path
	layer   string   // "AGT" if the sinks are wireless, else empty
}

// Trace is what a simulation has shown.
type Trace struct {
	Paths []flow.Series // payload by path, in KB/s
	Delay []float64     // mean delay of the packets that arrived in each slot, in seconds; NaN of none
	Sent  int           // packets with data that were sent, again or for the first time
	Lost  int           // of them, how many never arrived
}

// Total returns the throughput of all paths together.
func (t Trace) Total() flow.Series {
	total := flow.Series{Slot: flow.Interval}
	for i := range t.Paths[0].Rates {
		sum := 0.0
		for _, p := range t.Paths {
			sum += p.Rates[i]
		}
		total.Rates = append(total.Rates, sum)
	}
	return total
}

// From returns the trace without its beginning, but for Sent and Lost.
func (t Trace) From(begin time.Duration) Trace {
	paths := make([]flow.Series, len(t.Paths))
	for i, p := range t.Paths {
		paths[i] = p.From(begin)
	}
	t.Paths, t.Delay = paths, t.Delay[begin/flow.Interval:]
	return t
}

// Loss returns the share of packets that were lost, retransmissions among them,
// as [MS] 2.4 counts it.
func (t Trace) Loss() float64 {
	if t.Sent == 0 {
		return 0
	}
	return float64(t.Lost) / float64(t.Sent)
}

// readTrace reads a trace of that length from r.
func readTrace(r io.Reader, p place, length time.Duration) (Trace, error) {
	slots := int(length / flow.Interval)
	t := Trace{Delay: make([]float64, slots)}
	for range p.sinks {
		t.Paths = append(t.Paths, flow.Series{Slot: flow.Interval, Rates: make([]float64, slots)})
	}
	count := make([]int, slots)
	under := make(map[string]float64) // when each packet that has not arrived yet was sent
	any := false
	err := readEvents(r, func(e event) {
		any = true
		if e.bytes < dataBytes || !(e.at >= 0 && e.at < length.Seconds()) {
			return
		}
		slot := min(int(e.at/flow.Interval.Seconds()), slots-1)
		switch {
		case e.kind == '+' && (len(p.sources) == 0 || slices.Contains(p.sources, e.from)):
			t.Sent++
			under[e.id] = e.at
		case e.kind == 'r' && e.layer == p.layer:
			for i, sink := range p.sinks {
				if e.to != sink {
					continue
				}
				t.Paths[i].Rates[slot] += float64(e.bytes-headerBytes) / flow.Kilo / flow.Interval.Seconds()
				if sent, ok := under[e.id]; ok {
					t.Delay[slot] += e.at - sent
					count[slot]++
					delete(under, e.id)
				}
			}
		}
	})
	if err != nil {
		return t, err
	}
	if !any {
		return t, fmt.Errorf("read trace: nothing in it is an event")
	}
	for i, n := range count {
		t.Delay[i] /= float64(n)
		if n == 0 {
			t.Delay[i] = math.NaN()
		}
	}
	// What was sent in the last second may still be under way.
	for _, at := range under {
		if at < length.Seconds()-1 {
			t.Lost++
		}
	}
	return t, nil
}
