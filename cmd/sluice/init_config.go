package main

import (
	"context"
	"flag"
	"io"

	"sluice/config"
)

func initConfig(_ context.Context, args []string, stdout, stderr io.Writer) error {
	if _, err := parse(flag.NewFlagSet("init-config", flag.ContinueOnError), args, stderr, 0); err != nil {
		return err
	}
	_, err := io.WriteString(stdout, config.GatewayExample())
	return err
}
