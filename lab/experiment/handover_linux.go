package experiment

import (
	"context"
	"errors"
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
	flap := func(n *network, length time.Duration) []step {
		const up, down = 8 * time.Second, 12 * time.Second
		var steps []step
		for at := up; at < length; at += up + down {
			steps = append(steps, step{at: at, do: n.Paths[0].Cut})
			if at+down < length {
				steps = append(steps, step{at: at + down, do: n.Paths[0].Restore})
			}
		}
		return steps
	}
	err := b.long(ctx, handoverFlaps, b.length(10*time.Minute, 40*time.Second), topology.Quality{}, products(), flap)
	if err != nil {
		return err
	}
	calm := topology.Quality{Jitter: 10 * time.Millisecond, Loss: 0.02}
	return b.long(ctx, handoverCalm, b.length(time.Hour, time.Minute), calm, products()[2:], func(*network, time.Duration) []step { return nil })
}

// tripQuality is a path with a round trip in ms and a queue beside what is under way.
func tripQuality(ms float64) topology.Quality {
	way := time.Duration(ms / 2 * float64(time.Millisecond))
	underWay := int(way.Seconds() * linkRate / 8 / 1514)
	return topology.Quality{Rate: linkRate, Delay: way, Limit: linkQueue + underWay}
}

// busiest finds the path that carries most: a death of another would be no test.
type busiest struct {
	paths  []*topology.Path
	before []uint64 // bytes, of each path
	path   *topology.Path
}

// begin begins to count.
func (b *busiest) begin() error {
	b.before = make([]uint64, len(b.paths))
	for i, p := range b.paths {
		t, err := p.Middle.Traffic()
		if err != nil {
			return err
		}
		b.before[i] = t.Bytes
	}
	return nil
}

// end sets path.
func (b *busiest) end() error {
	b.path = b.paths[0]
	most := uint64(0)
	for i, p := range b.paths {
		t, err := p.Middle.Traffic()
		if err != nil {
			return err
		}
		if carried := t.Bytes - b.before[i]; carried > most {
			b.path, most = p, carried
		}
	}
	return nil
}

// handoverSteps are what happens to the first path in a run of that length, or if
// one dies to the one that carries.
func handoverSteps(name string, n *network, quality topology.Quality, length time.Duration) []step {
	if name == handoverDies {
		watch := busiest{paths: n.Paths}
		return []step{
			{at: length/4 - time.Second, do: watch.begin},
			{at: length / 4, do: func() error { return errors.Join(watch.end(), watch.path.Cut()) }},
			{at: length * 3 / 4, do: func() error { return watch.path.Restore() }},
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

// long takes minutes, at a rate for which a backlog can be made.
func (b *bench) long(ctx context.Context, name string, length time.Duration, quality topology.Quality, schemes []scheme, steps func(*network, time.Duration) []step) error {
	quality.Rate, quality.Delay, quality.Limit = linkRate/16, 20*time.Millisecond, linkQueue
	b.backlog = nil
	b.need(capacity/16, length)
	for _, s := range schemes {
		r := Record{Case: name, At: 40, Run: 1}
		build := func() (*network, error) { return newNetwork(quality, quality) }
		if err := b.measured(ctx, r, s, length, build, func(n *network) []step { return steps(n, length) }); err != nil {
			return err
		}
	}
	return nil
}
