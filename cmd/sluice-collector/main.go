// Command sluice-collector is the far end of Sluice gateways: it takes their
// readings and keeps each once, in a NATS JetStream stream, on an MQTT broker or
// in files.
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
		{"run", "--config FILE", "take readings until SIGTERM or SIGINT", serve},
		{"status", "[--config FILE] [--json]", "what a running collector is doing", status},
		{"keys", "--dir DIR [--gateway ID]... [--host NAME]...", "make the certificates of a collector and its gateways", keys},
		{"init-config", "", "write a commented configuration", initConfig},
		{"check-config", "FILE", "report every fault of a configuration", checkConfig},
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
			fmt.Fprintf(stderr, "sluice-collector %s: %v\n", c.name, err)
			return 1
		}
	}
	fmt.Fprintf(stderr, "sluice-collector: unknown command %q\n", args[0])
	usage(stderr)
	return 2
}

func usage(w io.Writer) {
	fmt.Fprint(w, "usage: sluice-collector COMMAND\n\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-13s %s\n", c.name, c.about)
		if c.args != "" {
			fmt.Fprintf(w, "  %-13s   %s\n", "", c.args)
		}
	}
}

// parse parses a command's flags and checks how many arguments follow them.
func parse(flags *flag.FlagSet, args []string, stderr io.Writer, operands int) error {
	flags.SetOutput(stderr)
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return errUsage
	}
	if flags.NArg() != operands {
		fmt.Fprintf(stderr, "sluice-collector %s: %d arguments given, %d wanted\n", flags.Name(), flags.NArg(), operands)
		return errUsage
	}
	return nil
}
