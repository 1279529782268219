package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"sluice/reading"
	"sluice/store"
)

func inspectStore(_ context.Context, args []string, stdout, stderr io.Writer) error {
	operands, err := parse(flag.NewFlagSet("store", flag.ContinueOnError), args, stderr, 2)
	if err != nil {
		return err
	}
	what, file := operands[0], operands[1]
	if info, err := os.Stat(file); err != nil {
		return fmt.Errorf("%w; name the file store.db in the gateway's data folder", err)
	} else if info.IsDir() {
		return fmt.Errorf("%s is a folder; name the file in it, %s", file, filepath.Join(file, "store.db"))
	}
	switch what {
	case "check":
		return storeCheck(file, stdout)
	case "stat":
		return storeStat(file, stdout)
	case "export":
		out := bufio.NewWriter(stdout)
		err := store.Export(file, out)
		// What could be read is written, whatever went wrong behind it.
		if flushed := out.Flush(); err == nil {
			err = flushed
		}
		return err
	}
	fmt.Fprintf(stderr, "sluice store: unknown %q: write check, stat or export\n", what)
	return errUsage
}

func storeCheck(file string, w io.Writer) error {
	r, err := store.Check(file)
	if err != nil {
		return err
	}
	for l, lane := range r.Lanes {
		fmt.Fprintf(w, "%-9s %d readings in %d values, %d bytes, numbers %d to %d\n",
			reading.Lane(l), lane.Readings, lane.Segments, lane.Bytes, lane.First, lane.Last)
	}
	if r.SetAside > 0 {
		fmt.Fprintf(w, "%d damaged values were set aside inside the store\n", r.SetAside)
	}
	for _, f := range r.Files {
		fmt.Fprintf(w, "damaged file set aside: %s\n", f)
	}
	for _, p := range r.Problems {
		fmt.Fprintf(w, "fault: %s\n", p)
	}
	if more := r.Count - len(r.Problems); more > 0 {
		fmt.Fprintf(w, "and %d faults more\n", more)
	}
	if r.Count > 0 || len(r.Problems) > 0 {
		fmt.Fprintln(w, "the store is damaged: a gateway that starts with it sets it aside and keeps what can be read")
		return errReported
	}
	fmt.Fprintln(w, "the store is whole")
	return nil
}

func storeStat(file string, w io.Writer) error {
	s, err := store.Stat(file)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "epoch     %016x\n", s.Epoch)
	for l, lane := range s.Lanes {
		oldest := ""
		if lane.Oldest != 0 {
			oldest = ", oldest stored " + time.Unix(0, lane.Oldest).UTC().Format(time.RFC3339)
		}
		fmt.Fprintf(w, "%-9s %d readings, %d bytes, next number %d, acknowledged to %d, removed %d%s\n",
			reading.Lane(l), lane.Readings, lane.Bytes, lane.Next, lane.Acked, lane.Removed, oldest)
	}
	fmt.Fprintf(w, "file      %d bytes, %d in use\n", s.FileBytes, s.UsedBytes)
	if s.Damaged > 0 {
		fmt.Fprintf(w, "damaged   %d readings\n", s.Damaged)
	}
	if s.SetAside != "" {
		fmt.Fprintf(w, "set aside %s\n", s.SetAside)
	}
	return nil
}
