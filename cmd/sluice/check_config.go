package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"sluice/config"
)

func checkConfig(_ context.Context, args []string, stdout, stderr io.Writer) error {
	operands, err := parse(flag.NewFlagSet("check-config", flag.ContinueOnError), args, stderr, 1)
	if err != nil {
		return err
	}
	file := operands[0]
	_, err = load(file)
	if faults, ok := errors.AsType[config.Faults](err); ok {
		fmt.Fprint(stdout, faults.Report(file))
		return errReported
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s: ok\n", file)
	return nil
}
