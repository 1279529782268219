package main

import (
	"context"
	"flag"
	"fmt"
	"io"
)

// version is set by the linker.
var version = "unknown"

func writeVersion(_ context.Context, args []string, stdout, stderr io.Writer) error {
	if err := parse(flag.NewFlagSet("version", flag.ContinueOnError), args, stderr, 0); err != nil {
		return err
	}
	_, err := fmt.Fprintln(stdout, "sluice-collector", version)
	return err
}
