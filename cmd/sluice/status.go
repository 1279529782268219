package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"sluice/admin"
	"sluice/config"
)

func status(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	return ask(ctx, "status", admin.WriteTable, args, stdout, stderr)
}

func showPaths(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	return ask(ctx, "paths", admin.WritePaths, args, stdout, stderr)
}

func showSwitches(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	return ask(ctx, "switches", admin.WriteSwitches, args, stdout, stderr)
}

// ask fetches the status document of the running gateway and shows it, or a
// part of it, as write does.
func ask(ctx context.Context, name string, write func(io.Writer, *admin.Status) error, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	file := flags.String("config", defaultConfig, "the gateway's configuration `FILE`")
	socket := flags.String("socket", "", "the gateway's status socket, instead of --config")
	asJSON := flags.Bool("json", false, "write the status document")
	watch := flags.Bool("watch", false, "show it again every second")
	if _, err := parse(flags, args, stderr, 0); err != nil {
		return err
	}
	if *socket == "" {
		// A gateway goes on while its file has a fault; it is asked all the same.
		s, err := config.StatusSocket(*file)
		if err != nil {
			return err
		}
		*socket = s
	}
	show := func() (bool, error) {
		s, document, err := admin.Fetch(ctx, *socket)
		if err != nil {
			return false, err
		}
		var out bytes.Buffer
		if *asJSON {
			out.Write(document)
		} else if err := write(&out, &s); err != nil {
			return false, err
		}
		if *watch && !*asJSON && isTerminal(stdout) {
			// Home, and clear behind: no flicker.
			fmt.Fprint(stdout, "\x1b[H\x1b[J")
		}
		_, err = stdout.Write(out.Bytes())
		return s.Health.OK, err
	}
	if !*watch {
		ok, err := show()
		if err == nil && !ok && name == "status" {
			return errReported
		}
		return err
	}
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		if _, err := show(); err != nil && !errors.Is(err, context.Canceled) {
			fmt.Fprintf(stderr, "sluice %s: %v\n", name, err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
