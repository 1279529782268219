package experiment

import (
	"context"
	"time"

	"sluice/lab/topology"
)

func measureChain(ctx context.Context, b *bench) error {
	schemes := append([]scheme{tcpScheme("cubic", 1), tcpScheme("bbr", 1), sctpScheme(false, 1), sctpScheme(true, 1)}, products()...)
	length := b.length(40*time.Second, 8*time.Second)
	b.need(2*chainRate, length)
	for _, at := range chainRates(b.env.Quick) {
		rate, loss := chainLink(at / 100)
		quality := topology.Quality{
			// The rate is of frames: capacity is what 8 Mbit/s carry.
			Rate:  int64(linkRate * rate / capacity),
			Delay: 4 * time.Millisecond, Limit: linkQueue,
		}
		for _, s := range schemes {
			for run := range b.runs() {
				r := Record{Case: chainCase, At: at, Run: run + 1, Bound: round(rate * (1 - loss))}
				build := func() (*network, error) { return newNetwork(quality, quality) }
				errors := func(n *network) []step {
					q := quality
					q.Loss = loss
					var steps []step
					for path := range n.Paths {
						steps = append(steps, step{do: func() error { return n.impair(path, q) }})
					}
					return steps
				}
				if err := b.measured(ctx, r, s, length, build, errors); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
