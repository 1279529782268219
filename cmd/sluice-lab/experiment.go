package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"sluice/lab/experiment"
	"sluice/lab/guest"
)

// list names the experiments.
func list(_ context.Context, _ []string, stdout, _ io.Writer) error {
	for _, e := range experiment.All() {
		fmt.Fprintf(stdout, "  %-10s %s\n", e.Name, e.Summary)
	}
	return nil
}

// named parses options that may stand before and after the experiment's name.
func named(flags *flag.FlagSet, args []string, stderr io.Writer) (string, error) {
	flags.SetOutput(stderr)
	var name string
	for len(args) > 0 {
		if err := flags.Parse(args); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				return "", err
			}
			return "", errUsage
		}
		if args = flags.Args(); len(args) == 0 {
			break
		}
		if name != "" {
			fmt.Fprintf(stderr, "%s: unexpected argument %q\n", flags.Name(), args[0])
			return "", errUsage
		}
		name, args = args[0], args[1:]
	}
	if name == "" {
		fmt.Fprintf(stderr, "%s: name an experiment; sluice-lab list shows them\n", flags.Name())
		return "", errUsage
	}
	return name, nil
}

// find returns the experiment of a name.
func find(name string) (experiment.Experiment, error) {
	e, ok := experiment.Find(name)
	if !ok {
		return e, fmt.Errorf("find experiment %q: there is none; sluice-lab list shows them", name)
	}
	return e, nil
}

// runExperiment runs an experiment, or all, and writes what came out.
func runExperiment(ctx context.Context, args []string, _, stderr io.Writer) error {
	flags := flag.NewFlagSet("sluice-lab run", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprint(stderr, "usage: sluice-lab run NAME|all [options]\n\n")
		flags.PrintDefaults()
	}
	env := experiment.Env{Progress: stderr}
	choice(flags, &env)
	flags.StringVar(&env.Results, "results", "docs/results", "folder that the results are written to")
	cache := flags.String("cache", cacheDir, "folder for kernels")
	arch := flags.String("arch", string(guest.AMD64), "of the guest: arm64, arm or amd64; amd64 is the fastest")
	limit := flags.Duration("timeout", 6*time.Hour, "after which an experiment's guest is stopped")
	name, err := named(flags, args, stderr)
	if err != nil {
		return err
	}
	experiments := experiment.All()
	if name != "all" {
		e, err := find(name)
		if err != nil {
			return err
		}
		experiments = []experiment.Experiment{e}
	}
	dir, err := os.MkdirTemp("", "sluice-lab-")
	if err != nil {
		return fmt.Errorf("build for a guest: %w", err)
	}
	defer os.RemoveAll(dir)
	g, err := newGuest(ctx, guest.Options{Arch: guest.Arch(*arch), Cache: *cache, Timeout: *limit, Memory: 2048}, dir)
	if err != nil {
		return err
	}
	env.Guest = g.lab
	var errs []error
	for _, e := range experiments {
		// One that goes wrong does not take the others along.
		errs = append(errs, e.Run(ctx, env))
	}
	return errors.Join(errs...)
}

// choice are the options that say what of an experiment is measured.
func choice(flags *flag.FlagSet, env *experiment.Env) {
	flags.BoolVar(&env.Quick, "quick", false, "fewer cases and shorter: whether it works, not how good it is")
	flags.StringVar(&env.Case, "case", "", "only cases whose name holds this")
	flags.StringVar(&env.Scheme, "scheme", "", "only schemes whose name holds this")
	flags.Uint64Var(&env.Seed, "seed", 1, "of every random choice")
}

// programsDir is where a guest has the programs.
const programsDir = "/bin"

// guestLab runs sluice-lab in guests.
type guestLab struct{ o guest.Options }

// newGuest builds the programs for a guest into dir.
func newGuest(ctx context.Context, o guest.Options, dir string) (*guestLab, error) {
	programs := []string{"sluice", "sluice-collector", "sluice-lab"}
	var packages []string
	o.Files = make(map[string]string)
	for _, name := range programs {
		packages = append(packages, "sluice/cmd/"+name)
		o.Files[programsDir+"/"+name] = filepath.Join(dir, name)
	}
	o.Init = filepath.Join(dir, "sluice-lab")
	if err := guest.Build(ctx, o.Arch, dir, packages...); err != nil {
		return nil, err
	}
	return &guestLab{o: o}, nil
}

// lab runs sluice-lab with arguments, each time in a guest of its own.
func (g *guestLab) lab(ctx context.Context, args []string, line func([]byte)) error {
	o := g.o
	o.Command = append([]string{programsDir + "/sluice-lab"}, args...)
	return guest.Run(ctx, o, line)
}

// measure is an experiment's part inside the guest; it prints a record a line.
func measure(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("sluice-lab "+experiment.Command, flag.ContinueOnError)
	env := experiment.Env{Binaries: programsDir, Dir: os.TempDir(), Progress: stderr}
	choice(flags, &env)
	name, err := named(flags, args, stderr)
	if err != nil {
		return err
	}
	e, err := find(name)
	if err != nil {
		return err
	}
	records := json.NewEncoder(stdout)
	return e.Measure(ctx, env, func(r experiment.Record) error { return records.Encode(r) })
}
