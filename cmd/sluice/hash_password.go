package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"sluice/ingest/broker"
)

func hashPassword(_ context.Context, args []string, stdout, stderr io.Writer) error {
	if _, err := parse(flag.NewFlagSet("hash-password", flag.ContinueOnError), args, stderr, 0); err != nil {
		return err
	}
	password, err := readPassword(os.Stdin, stderr)
	if err != nil {
		return fmt.Errorf("read password: %w", err)
	}
	if password == "" {
		return errors.New("read password: it is empty; type one, or pass one line to the standard input")
	}
	hash, err := broker.HashPassword(password)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, hash)
	return err
}

// readPassword asks for a line that is not shown, or takes the first of a file.
func readPassword(in *os.File, prompt io.Writer) (string, error) {
	if term.IsTerminal(int(in.Fd())) {
		fmt.Fprint(prompt, "password: ")
		b, err := term.ReadPassword(int(in.Fd()))
		fmt.Fprintln(prompt)
		return string(b), err
	}
	line, err := bufio.NewReader(io.LimitReader(in, 1024)).ReadString('\n')
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return strings.TrimRight(line, "\r\n"), err
}
