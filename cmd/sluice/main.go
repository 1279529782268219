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
	"strings"
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
	text              string // of "sluice help NAME"
	run               func(ctx context.Context, args []string, stdout, stderr io.Writer) error
}

func commands() []command {
	return []command{
		{"run", "[--config FILE]", "be the gateway", runText, runGateway},
		{"status", "[--config FILE | --socket PATH] [--json] [--watch]", "show what the running gateway is doing", statusText, status},
		{"paths", "[--config FILE | --socket PATH] [--json] [--watch]", "show every way to the collector: loss, round trip, why", pathsText, showPaths},
		{"switches", "[--config FILE | --socket PATH] [--json] [--watch]", "show when and why the path or the protocol changed", switchesText, showSwitches},
		{"check-config", "FILE", "report every fault of a configuration", checkConfigText, checkConfig},
		{"init-config", "", "write a commented configuration", initConfigText, initConfig},
		{"hash-password", "", "turn a password into what password_hash wants", hashPasswordText, hashPassword},
		{"push", "FILE|- --to URL [--node NAME] [--token-file FILE]", "send readings to a gateway until they are accepted", pushText, pushBatch},
		{"store", "check|stat|export FILE", "look at the store of a gateway that does not run", storeText, inspectStore},
		{"version", "", "write the version", versionText, writeVersion},
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
	name, args := args[0], args[1:]
	switch name {
	case "help", "-h", "-help", "--help":
		if len(args) == 0 {
			usage(stdout)
			return 0
		}
		name, args = args[0], []string{"--help"}
	}
	for _, c := range commands() {
		if c.name != name {
			continue
		}
		switch err := c.run(ctx, args, stdout, stderr); {
		case err == nil:
			return 0
		case errors.Is(err, flag.ErrHelp):
			c.help(stdout)
			return 0
		case errors.Is(err, errUsage):
			fmt.Fprintf(stderr, "usage: %s\n\"sluice help %s\" says more.\n", c.synopsis(), c.name)
			return 2
		case errors.Is(err, errReported):
			return 1
		default:
			fmt.Fprintf(stderr, "sluice %s: %v\n", c.name, err)
			return 1
		}
	}
	fmt.Fprintf(stderr, "sluice: unknown command %q\n", name)
	usage(stderr)
	return 2
}

func usage(w io.Writer) {
	fmt.Fprint(w, "usage: sluice COMMAND\n\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-14s %s\n", c.name, c.about)
	}
	fmt.Fprint(w, "\n\"sluice help COMMAND\" says more about one of them.\n")
}

func (c *command) synopsis() string { return strings.TrimRight("sluice "+c.name+" "+c.args, " ") }

func (c *command) help(w io.Writer) {
	fmt.Fprintf(w, "sluice %s: %s\n\nusage: %s\n\n%s", c.name, c.about, c.synopsis(), c.text)
}

// parse reads a command's flags, which may stand before, between and behind its
// operands, and returns the operands, of which there must be so many.
func parse(flags *flag.FlagSet, args []string, stderr io.Writer, operands int) ([]string, error) {
	flags.SetOutput(io.Discard) // what is wrong is said here, once
	var found []string
	for {
		if err := flags.Parse(args); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				return nil, err
			}
			fmt.Fprintf(stderr, "sluice %s: %v\n", flags.Name(), err)
			return nil, errUsage
		}
		if flags.NArg() == 0 {
			break
		}
		found, args = append(found, flags.Arg(0)), flags.Args()[1:]
	}
	if len(found) != operands {
		fmt.Fprintf(stderr, "sluice %s: arguments given: %d, wanted: %d\n", flags.Name(), len(found), operands)
		return nil, errUsage
	}
	return found, nil
}
