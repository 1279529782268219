package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"sluice/admin"
	"sluice/config"
)

const (
	defaultConfig = "/etc/sluice/sluice.toml"
	// memoryLimit is for the heap. With the runtime, the program and the part
	// of the store that is mapped, the process stays under 64 MB.
	memoryLimit = 40 << 20
)

// runGateway is the gateway: what it consists of is in gateway.go.
func runGateway(ctx context.Context, args []string, _, stderr io.Writer) error {
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	file := flags.String("config", defaultConfig, "the configuration `FILE`")
	if _, err := parse(flags, args, stderr, 0); err != nil {
		return err
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	c, err := load(*file)
	if faults, ok := errors.AsType[config.Faults](err); ok {
		fmt.Fprint(stderr, faults.Report(*file))
		return errReported
	}
	if err != nil {
		return err
	}
	level := new(slog.LevelVar)
	log := slog.New(admin.LimitLogs(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level})))

	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	g, err := open(c, *file, log, level)
	if err != nil {
		return err
	}
	log.Info("gateway runs", "id", c.Gateway.ID, "version", version, "config", *file)
	for {
		select {
		case <-hangup:
			g.reload()
		case <-ctx.Done():
			log.Info("gateway stops")
			return g.close()
		}
	}
}
