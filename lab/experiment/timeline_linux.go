package experiment

import (
	"context"
	"errors"
	"time"

	"sluice/lab/flow"
)

// step is something that happens to a network so long after the onset.
type step struct {
	at time.Duration
	do func() error
}

// follow runs a sender while steps, which are in order, happen.
func follow(ctx context.Context, sender flow.Sender, length time.Duration, steps []step) (flow.Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	begun := false
	onset := func() error {
		begun = true
		origin := time.Now()
		go func() {
			for _, s := range steps {
				select {
				case <-time.After(time.Until(origin.Add(s.at))):
				case <-ctx.Done():
					done <- nil
					return
				}
				if err := s.do(); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
		return nil
	}
	result, err := sender.Run(ctx, length, onset)
	cancel()
	if begun {
		err = errors.Join(err, <-done)
	}
	return result, err
}

// measured runs one scheme over a network of its own and emits the record, also
// of a run that failed.
func (b *bench) measured(ctx context.Context, r Record, s scheme, length time.Duration, build func() (*network, error), steps func(*network) []step) error {
	r.Experiment, r.Source, r.Scheme = b.name, Measured, s.name
	return b.record(ctx, r, func(r *Record) error {
		n, err := build()
		if err != nil {
			return err
		}
		defer n.Close()
		sender, err := n.open(ctx, b, s)
		if err != nil {
			return err
		}
		result, err := follow(ctx, sender, length, steps(n))
		if err != nil {
			return err
		}
		r.setResult(result)
		return nil
	})
}
