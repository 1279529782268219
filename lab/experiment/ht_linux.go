package experiment

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"sluice/lab/flow"
	"sluice/lab/topology"
)

// competitor is a flow that shares the bottleneck for a while.
type competitor struct{ start, end time.Duration }

// htCompetitors are the first and the third flow of each run; the middle one
// starts at 0.
func htCompetitors(run int) []competitor {
	const s = time.Second
	if run == 1 {
		return []competitor{{0, 3500 * time.Millisecond}, {0, 6500 * time.Millisecond}}
	}
	return []competitor{{1 * s, 7 * s}, {4 * s, 7 * s}}
}

func measureSingle(ctx context.Context, b *bench) error {
	schemes := []scheme{tcpScheme("cubic", 1), tcpScheme("bbr", 1), sctpScheme(false, 1), sctpScheme(true, 1)}
	for run := 1; run <= 2; run++ {
		for _, queue := range htQueues() {
			for _, s := range schemes {
				for i := range b.runs() {
					r := Record{Experiment: b.name, Source: Measured, Case: htCase(run), Scheme: s.name, At: float64(queue), Run: i + 1}
					if err := b.record(ctx, r, func(r *Record) error { return b.amongCompetitors(ctx, r, s, run, queue) }); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

func (b *bench) amongCompetitors(ctx context.Context, r *Record, s scheme, run, queue int) error {
	n, err := newNetwork(topology.Quality{})
	if err != nil {
		return err
	}
	defer n.Close()
	// The queue must hold what waits for the link and not what is under way, so
	// the delay is on other hops.
	p := n.Paths[0]
	const way = 45 * time.Millisecond
	bottleneck := topology.Quality{Rate: 1.7e6, Limit: queue}
	if err := errors.Join(p.Middle.Set(bottleneck), p.Exit.A.Set(topology.Quality{Delay: way}), p.Access.B.Set(topology.Quality{Delay: way})); err != nil {
		return err
	}
	var rivals []flow.Sender
	for i := range htCompetitors(run) {
		remote := n.remotes()
		remote[0] = netip.AddrPortFrom(remote[0].Addr(), port+1+uint16(i))
		f, err := flow.Open(ctx, flow.Options{Transport: tcpScheme("cubic", 1).transport, From: n.Gateway, To: n.Collector, Remote: remote})
		if err != nil {
			return err
		}
		defer f.Close()
		rivals = append(rivals, f)
	}
	middle, err := n.open(ctx, b, s)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	var steps []step
	for i, c := range htCompetitors(run) {
		steps = append(steps, step{at: c.start, do: func() error {
			wg.Go(func() {
				// What a competitor achieves is not measured.
				_, _ = rivals[i].Run(ctx, c.end-c.start, func() error { return nil })
			})
			return nil
		}})
	}
	length := 9500 * time.Millisecond
	if run == 2 {
		length = 7500 * time.Millisecond
	}
	result, err := follow(ctx, middle, length, steps)
	if err != nil {
		return err
	}
	cancel()
	r.setResult(result)
	return nil
}

func measureMulti(ctx context.Context, b *bench) error {
	schemes := append([]scheme{tcpScheme("cubic", 1), mptcpScheme(), sctpScheme(false, 1), sctpScheme(true, 1)}, products()...)
	// The queue counts what is under way as well: 21 packets.
	good := topology.Quality{Rate: 5e6, Delay: 50 * time.Millisecond, Limit: linkQueue + 21}
	bad := topology.Quality{Rate: htDegraded * 1e6, Delay: 100 * time.Millisecond, Limit: linkQueue + 9}
	build := func() (*network, error) { return newNetwork(good, good) }
	degrade := func(n *network) []step {
		return []step{{at: 4500 * time.Millisecond, do: func() error { return n.Paths[0].Set(bad, bad) }}}
	}
	length := b.length(15*time.Second, 10*time.Second)
	b.need(2*capacity*5/8, length)
	for _, s := range schemes {
		for run := range b.runs() {
			r := Record{Case: htMultiCase, At: htDegraded, Run: run + 1}
			if err := b.measured(ctx, r, s, length, build, degrade); err != nil {
				return err
			}
		}
	}
	return nil
}
