package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"sluice/lab/guest"
)

// cacheDir is where kernels for guests are kept.
const cacheDir = "var/lab"

// runGuest runs a program of this machine in a guest.
func runGuest(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("sluice-lab guest", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(stderr, "usage: sluice-lab guest [options] PROGRAM [arguments]\n\nrun a static program on another kernel and processor, in QEMU\n\n")
		flags.PrintDefaults()
	}
	o := guest.Options{Files: make(map[string]string)}
	arch := flags.String("arch", string(guest.ARM64), "arm64, arm or amd64, which is the fastest")
	flags.StringVar(&o.Cache, "cache", cacheDir, "folder for kernels")
	flags.DurationVar(&o.Timeout, "timeout", 5*time.Minute, "after which the guest is stopped")
	flags.IntVar(&o.Memory, "memory", 1024, "of the guest, in MB")
	flags.Func("file", "`HERE:THERE`, a file to take along; may be repeated", func(s string) error {
		here, there, ok := strings.Cut(s, ":")
		if !ok || !strings.HasPrefix(there, "/") {
			return errors.New("give a file and its path in the guest, as in config.toml:/etc/config.toml")
		}
		o.Files[there] = here
		return nil
	})
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return errUsage
	}
	if flags.NArg() == 0 {
		flags.Usage()
		return errUsage
	}
	o.Arch = guest.Arch(*arch)
	program := path.Join("/bin", filepath.Base(flags.Arg(0)))
	o.Files[program] = flags.Arg(0)
	o.Command = append([]string{program}, flags.Args()[1:]...)
	dir, err := os.MkdirTemp("", "sluice-lab-")
	if err != nil {
		return fmt.Errorf("build for a guest: %w", err)
	}
	defer os.RemoveAll(dir)
	if err := guest.Build(ctx, o.Arch, dir, "sluice/cmd/sluice-lab"); err != nil {
		return err
	}
	o.Init = filepath.Join(dir, "sluice-lab")
	return guest.Run(ctx, o, func(line []byte) { fmt.Fprintf(stdout, "%s\n", line) })
}

// guestInit is the first process of a guest.
func guestInit(context.Context, []string, io.Writer, io.Writer) error { return guest.Init() }
