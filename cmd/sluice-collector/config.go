package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"sluice/config"
)

// initConfig writes the example to standard output.
func initConfig(_ context.Context, args []string, stdout, stderr io.Writer) error {
	if err := parse(flag.NewFlagSet("init-config", flag.ContinueOnError), args, stderr, 0); err != nil {
		return err
	}
	_, err := io.WriteString(stdout, config.CollectorExample())
	return err
}

// checkConfig reports every fault of a file.
func checkConfig(_ context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("check-config", flag.ContinueOnError)
	if err := parse(flags, args, stderr, 1); err != nil {
		return err
	}
	if _, err := load(flags.Arg(0), stderr); err != nil {
		return err
	}
	_, err := fmt.Fprintf(stdout, "%s: no faults\n", flags.Arg(0))
	return err
}

// load reads a configuration; faults go to stderr, each on its line.
func load(path string, stderr io.Writer) (*config.Collector, error) {
	c, err := config.LoadCollector(path)
	var faults config.Faults
	if errors.As(err, &faults) {
		fmt.Fprint(stderr, faults.Report(path))
		return nil, errReported
	}
	return c, err
}
