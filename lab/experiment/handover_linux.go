package experiment

import (
	"context"
	"time"

	"sluice/lab/topology"
)

func measureHandover(ctx context.Context, b *bench) error {
	schemes := append([]scheme{mptcpScheme(), sctpScheme(false, 1), sctpScheme(true, 1)}, products()...)
	length := b.length(30*time.Second, 12*time.Second)
	b.need(capacity, length)
	for _, name := range []string{handoverWorse, handoverDies} {
		for _, roundTrip := range handoverTrips(name, b.env.Quick) {
			quality := tripQuality(roundTrip)
			for _, s := range schemes {
				for run := range b.runs() {
					r := Record{Case: name, At: roundTrip, Run: run + 1}
					build := func() (*network, error) { return newNetwork(quality, quality) }
					steps := func(n *network) []step { return handoverSteps(name, n, quality, length) }
					if err := b.measured(ctx, r, s, length, build, steps); err != nil {
						return err
					}
				}
			}
		}
	}
	return b.flapping(ctx)
}

// tripQuality is a path with a round trip in ms and a queue beside what is under way.
func tripQuality(ms float64) topology.Quality {
	way := time.Duration(ms / 2 * float64(time.Millisecond))
	underWay := int(way.Seconds() * linkRate / 8 / 1514)
	return topology.Quality{Rate: linkRate, Delay: way, Limit: linkQueue + underWay}
}

// handoverSteps are what happens to the first path in a run of that length.
func handoverSteps(name string, n *network, quality topology.Quality, length time.Duration) []step {
	if name == handoverDies {
		return []step{
			{at: length / 4, do: n.Paths[0].Cut},
			{at: length * 3 / 4, do: n.Paths[0].Restore},
		}
	}
	var steps []step
	const grades = 6
	for i := range grades {
		worse := quality
		worse.Loss = 0.30 * float64(i+1) / grades
		steps = append(steps, step{at: length/4 + time.Duration(i)*length/4/grades, do: func() error { return n.impair(0, worse) }})
	}
	return append(steps, step{at: length * 3 / 4, do: func() error { return n.impair(0, quality) }})
}

// flapping takes ten minutes, at a rate for which a backlog can be made.
func (b *bench) flapping(ctx context.Context) error {
	const up, down = 8 * time.Second, 12 * time.Second
	slow := topology.Quality{Rate: linkRate / 16, Delay: 20 * time.Millisecond, Limit: linkQueue}
	length := b.length(10*time.Minute, 40*time.Second)
	b.backlog = nil
	b.need(capacity/16, length)
	steps := func(n *network) []step {
		var steps []step
		for at := up; at < length; at += up + down {
			steps = append(steps, step{at: at, do: n.Paths[0].Cut})
			if at+down < length {
				steps = append(steps, step{at: at + down, do: n.Paths[0].Restore})
			}
		}
		return steps
	}
	for _, s := range products() {
		r := Record{Case: handoverFlaps, At: 40, Run: 1}
		build := func() (*network, error) { return newNetwork(slow, slow) }
		if err := b.measured(ctx, r, s, length, build, steps); err != nil {
			return err
		}
	}
	return nil
}
