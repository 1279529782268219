package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"runtime/debug"
	"time"
)

// version is set by the linker.
var version = "unknown"

func writeVersion(_ context.Context, args []string, stdout, stderr io.Writer) error {
	if _, err := parse(flag.NewFlagSet("version", flag.ContinueOnError), args, stderr, 0); err != nil {
		return err
	}
	_, err := fmt.Fprintln(stdout, "sluice", version)
	return err
}

// built is the time of the commit that the program was built from: it is later
// than that. Zero if nobody knows.
func built() time.Time {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return time.Time{}
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.time" {
			if t, err := time.Parse(time.RFC3339, s.Value); err == nil {
				return t
			}
		}
	}
	return time.Time{}
}
