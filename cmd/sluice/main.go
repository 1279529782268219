// Command sluice is a sensor gateway: it takes readings in, keeps them on disk
// and carries them to a collector. Its other commands are a technician's tools.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// command is one sub-command. Its run gets the arguments behind its name; a
// problem is its error.
type command struct {
	name, args, about string
	run               func(ctx context.Context, args []string, stdout, stderr io.Writer) error
}

func commands() []command {
	return []command{
		{"run", "--config FILE", "be a gateway until SIGTERM or SIGINT; SIGHUP reads FILE again", runGateway},
		{"status", "[--config FILE | --socket PATH] [--json] [--watch]", "what the running gateway is doing", status},
		{"check-config", "FILE", "report every fault of a configuration", checkConfig},
		{"init-config", "", "write a commented configuration", initConfig},
		{"hash-password", "", "read a password and write its hash, for password_hash", hashPassword},
		{"push", "FILE|- --to URL [--node NAME] [--token-file FILE]", "push a batch of SenML and keep it until it is accepted", pushBatch},
		{"store", "check|stat|export FILE", "look at a store that no gateway has open", inspectStore},
		{"version", "", "write the version", writeVersion},
	}
}

var (
	// errUsage is returned by a command whose arguments are wrong; it has said
	// so.
	errUsage = errors.New("wrong usage")
	// errReported is returned by a command that did not succeed and has said
	// why.
	errReported = errors.New("reported")
)

// run is the program. It returns the exit status: 0 is success, 1 failure, 2
// wrong usage.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		usage(stderr)
		return 2
	}
	switch args[0] {
	case "help", "-h", "-help", "--help":
		usage(stdout)
		return 0
	}
	for _, c := range commands() {
		if c.name != args[0] {
			continue
		}
		switch err := c.run(ctx, args[1:], stdout, stderr); {
		case err == nil || errors.Is(err, flag.ErrHelp):
			return 0
		case errors.Is(err, errUsage):
			return 2
		case errors.Is(err, errReported):
			return 1
		default:
			fmt.Fprintf(stderr, "sluice %s: %v\n", c.name, err)
			return 1
		}
	}
	fmt.Fprintf(stderr, "sluice: unknown command %q\n", args[0])
	usage(stderr)
	return 2
}

func usage(w io.Writer) {
	fmt.Fprint(w, "usage: sluice COMMAND\n\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-13s %s\n", c.name, c.about)
		if c.args != "" {
			fmt.Fprintf(w, "  %-13s   %s\n", "", c.args)
		}
	}
}

// parse reads a command's flags, which may stand before, between and behind its
// operands, and returns the operands, of which there must be so many.
func parse(flags *flag.FlagSet, args []string, stderr io.Writer, operands int) ([]string, error) {
	flags.SetOutput(stderr)
	var found []string
	for {
		if err := flags.Parse(args); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				return nil, err
			}
			return nil, errUsage
		}
		if flags.NArg() == 0 {
			break
		}
		found, args = append(found, flags.Arg(0)), flags.Args()[1:]
	}
	if len(found) != operands {
		fmt.Fprintf(stderr, "sluice %s: %d arguments given, %d wanted\n", flags.Name(), len(found), operands)
		return nil, errUsage
	}
	return found, nil
}
