package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"runtime/debug"
	"time"
)

// version and built, the time of the commit as in RFC 3339, are set by the linker.
var (
	version = "unknown"
	built   string
)

func writeVersion(_ context.Context, args []string, stdout, stderr io.Writer) error {
	if _, err := parse(flag.NewFlagSet("version", flag.ContinueOnError), args, stderr, 0); err != nil {
		return err
	}
	_, err := fmt.Fprintln(stdout, "sluice", version)
	return err
}

// written is when this line was: a clock that shows less is wrong, however the
// program was built.
const written = "2026-01-01T00:00:00Z"

// clockFloor is the latest time known to have passed when the program was built,
// as the linker was told, or as Go notes of the commit. The file's own time is no
// help: it is that of whatever clock the machine had that copied it.
func clockFloor(linked string, settings []debug.BuildSetting) time.Time {
	known := []string{written, linked}
	for _, s := range settings {
		if s.Key == "vcs.time" {
			known = append(known, s.Value)
		}
	}
	var floor time.Time
	for _, text := range known {
		if t, err := time.Parse(time.RFC3339, text); err == nil && t.After(floor) {
			floor = t
		}
	}
	return floor
}
