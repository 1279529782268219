package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"sluice/lab"
)

// benchmark is what the measurements share.
type benchmark struct {
	places
	quick   bool
	dir     string // a temporary folder
	stderr  io.Writer
	figures figures
}

// measurements are all parts of the benchmark, in the order of the table.
var measurements = []struct {
	name string
	run  func(*benchmark, context.Context) error
}{
	{"throughput", (*benchmark).throughput},
	{"mosquitto", (*benchmark).mosquitto},
	{"link", (*benchmark).link},
	{"memory", (*benchmark).memory},
	{"disk", (*benchmark).disk},
	{"idle", (*benchmark).idle},
}

// bench measures and prints a table and JSON lines.
func bench(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	b := &benchmark{stderr: stderr}
	flags := flag.NewFlagSet("sluice-lab bench", flag.ContinueOnError)
	flags.BoolVar(&b.quick, "quick", false, "measure for a shorter time, less exactly")
	only := flags.String("only", "", "measure one part: throughput, mosquitto, link, memory, disk or idle")
	save := flags.String("save", "", "also write bench.md and bench.jsonl into this folder")
	var err error
	if b.places, err = parse(flags, args, stderr); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "sluice-bench-"); err != nil {
		return fmt.Errorf("make a folder for the benchmark: %w", err)
	}
	defer os.RemoveAll(b.dir)
	known := false
	for _, m := range measurements {
		if *only != "" && *only != m.name {
			continue
		}
		known = true
		fmt.Fprintf(stderr, "measuring %s\n", m.name)
		switch err := m.run(b, ctx); {
		case errors.Is(err, lab.ErrNoMosquitto):
			fmt.Fprintf(stderr, "left out: %v\n", err)
		case err != nil:
			return fmt.Errorf("measure %s: %w", m.name, err)
		}
	}
	if !known {
		fmt.Fprintf(stderr, "sluice-lab bench: no part is named %q\n", *only)
		return errUsage
	}
	b.figures.compare()
	fmt.Fprintln(stdout, b.figures.table())
	fmt.Fprint(stdout, b.figures.lines())
	if *save == "" {
		return nil
	}
	if err := os.WriteFile(filepath.Join(*save, "bench.md"), []byte(b.figures.document()), 0o644); err != nil {
		return fmt.Errorf("save figures: %w", err)
	}
	if err := os.WriteFile(filepath.Join(*save, "bench.jsonl"), []byte(b.figures.lines()), 0o644); err != nil {
		return fmt.Errorf("save figures: %w", err)
	}
	return nil
}

// site makes a site for one part of the benchmark.
func (b *benchmark) site(ctx context.Context, name string, o lab.SiteOptions) (*lab.Site, error) {
	o.Dir, o.Binaries = filepath.Join(b.dir, name), b.binaries
	if err := os.Mkdir(o.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("make a site: %w", err)
	}
	return lab.NewSite(ctx, o)
}

// scale returns full, or quick for a quick run.
func (b *benchmark) scale(full, quick uint64) uint64 {
	if b.quick {
		return quick
	}
	return full
}
