package experiment

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sluice/lab/flow"
)

// bench is where the kernel's part of an experiment runs.
type bench struct {
	env     Env
	name    string
	emit    func(Record) error
	payload int           // bytes of backlog that a product needs, set by the experiment
	backlog *flow.Backlog // filled when first needed
	count   int           // of products, for their folders
}

// runs returns how often each case is repeated.
func (b *bench) runs() int {
	if b.env.Quick {
		return 1
	}
	return 3
}

// length returns full, or quick in a quick run.
func (b *bench) length(full, quick time.Duration) time.Duration {
	if b.env.Quick {
		return quick
	}
	return full
}

// need sets the backlog to what paths that carry so many KB/s in all deliver in
// a run of that length, with the time before its onset.
func (b *bench) need(rate float64, length time.Duration) {
	b.payload = int(rate * flow.Kilo * (length + 5*time.Second).Seconds() * 1.1)
}

// product prepares the real programs.
func (b *bench) product(ctx context.Context, o flow.ProductOptions) (flow.Sender, error) {
	if b.backlog == nil {
		// In a folder of its own: what is left of another would be sent as well.
		dir, err := os.MkdirTemp(b.env.Dir, "backlog-")
		if err != nil {
			return nil, err
		}
		if b.backlog, err = flow.NewBacklog(ctx, dir, b.env.Binaries, b.payload, b.env.Seed); err != nil {
			return nil, err
		}
	}
	b.count++
	o.Dir = filepath.Join(b.env.Dir, fmt.Sprintf("product-%d", b.count))
	return flow.OpenProduct(ctx, b.backlog, o)
}

// record makes one run and emits its record, if it is wanted. One that could not
// be made is noted: a scheme that cannot connect at half of all packets lost must
// not end the experiment, and nobody may take its absence for a result.
func (b *bench) record(ctx context.Context, r Record, run func(*Record) error) error {
	if !strings.Contains(r.Case, b.env.Case) || !strings.Contains(r.Scheme, b.env.Scheme) {
		return nil
	}
	r.Quick = b.env.Quick
	if err := run(&r); err != nil {
		if ctx.Err() != nil {
			return err
		}
		fmt.Fprintf(b.env.Progress, "%s: %v\n", r, err)
		r.setFailed(err)
	}
	return b.emit(r)
}

func (r *Record) setFailed(err error) { r.Note = "failed: " + firstLine(err.Error()) }
