package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"sluice/lab/experiment"
)

const usage = `usage: sluice-lab COMMAND [options]

  demo    send a fixed amount of recorded data and check what arrives
  live    send recorded data until interrupted and show what happens to it
  bench   measure this machine, as a table and as JSON lines
  list    name the experiments on lossy and changing links
  run     run an experiment, or all, and write its results
  guest   run a program on another kernel and processor, in QEMU

Each command has -h.
`

// run does what args say and returns the exit code: 0 when all is well, 1 when
// the command failed, 2 when it was not understood.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return 2
	}
	commands := map[string]func(context.Context, []string, io.Writer, io.Writer) error{
		"demo": demo, "live": live, "bench": bench,
		"list": list, "run": runExperiment, "guest": runGuest,
		// Inside a guest only:
		"guest-init": guestInit, experiment.Command: measure,
	}
	command, ok := commands[args[0]]
	if !ok {
		if args[0] == "help" || args[0] == "-h" || args[0] == "--help" {
			fmt.Fprint(stdout, usage)
			return 0
		}
		fmt.Fprintf(stderr, "sluice-lab: unknown command %q\n%s", args[0], usage)
		return 2
	}
	switch err := command(ctx, args[1:], stdout, stderr); {
	case err == nil:
		return 0
	case errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		return 2
	default:
		fmt.Fprintf(stderr, "sluice-lab: %v\n", err)
		return 1
	}
}

// errUsage is returned for arguments that were not understood; the flag set has
// said why.
var errUsage = errors.New("wrong arguments")

// places are the folders that every command works with.
type places struct {
	binaries, recordings string
}

// parse reads a command's options; every command has the folders.
func parse(flags *flag.FlagSet, args []string, stderr io.Writer) (places, error) {
	var p places
	own, err := os.Executable()
	if err != nil {
		return p, fmt.Errorf("find own folder: %w", err)
	}
	flags.SetOutput(stderr)
	flags.StringVar(&p.binaries, "bin", filepath.Dir(own), "folder of sluice and sluice-collector")
	flags.StringVar(&p.recordings, "data", "testdata", "folder of the recordings")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return p, err
		}
		return p, errUsage
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(stderr, "%s: unexpected argument %q\n", flags.Name(), flags.Arg(0))
		return p, errUsage
	}
	return p, nil
}
