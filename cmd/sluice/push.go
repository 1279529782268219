package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"sluice/ingest/push"
)

// maxPack is the largest file that is pushed, in bytes: it is held in memory to
// be cut.
const maxPack = 256 << 20

func pushBatch(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("push", flag.ContinueOnError)
	to := flags.String("to", "", "the gateway's `URL`, such as http://gateway:8080")
	node := flags.String("node", "", "the `NAME` that this node pushes under, if it has no token")
	tokenFile := flags.String("token-file", "", "the `FILE` that holds this node's token")
	operands, err := parse(flags, args, stderr, 1)
	if err != nil {
		return err
	}
	target, err := pushURL(*to)
	if err != nil {
		return err
	}
	client := &push.Client{URL: target, Node: *node, HTTP: http.DefaultClient, Random: rand.Float64}
	if *tokenFile != "" {
		token, err := os.ReadFile(*tokenFile)
		if err != nil {
			return fmt.Errorf("token: %w", err)
		}
		client.Token = strings.TrimSpace(string(token))
	}
	pack, err := readPack(operands[0])
	if err != nil {
		return err
	}
	contentType := push.TypeOf(pack)
	if contentType == "" {
		return fmt.Errorf("%s: holds no SenML, which is a JSON or CBOR array of records (RFC 8428)", operands[0])
	}
	parts, err := push.Parts(pack, contentType)
	if err != nil {
		return fmt.Errorf("%s: %w", operands[0], err)
	}
	show := progress{w: stderr, terminal: isTerminal(stderr), parts: len(parts)}
	client.Progress = show.try
	for _, part := range parts {
		if err := client.Push(ctx, part.Body, contentType, part.ID); err != nil {
			show.end()
			return err
		}
	}
	show.end()
	_, err = fmt.Fprintf(stdout, "accepted: %d bytes in %d batches\n", len(pack), len(parts))
	return err
}

// pushURL completes what a person gives as the gateway's address.
func pushURL(to string) (string, error) {
	const remedy = "write --to http://gateway:8080"
	if to == "" {
		return "", errors.New("no gateway: " + remedy)
	}
	u, err := url.Parse(to)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("gateway %q: not a URL; %s", to, remedy)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = push.Path
	}
	return u.String(), nil
}

// readPack reads a file, or the standard input for "-".
func readPack(file string) ([]byte, error) {
	in := os.Stdin
	if file != "-" {
		var err error
		if in, err = os.Open(file); err != nil {
			return nil, err
		}
		defer in.Close()
	}
	pack, err := io.ReadAll(io.LimitReader(in, maxPack+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	if len(pack) > maxPack {
		return nil, fmt.Errorf("read %s: more than %d bytes; split the file", file, maxPack)
	}
	return pack, nil
}

// progress shows how far a push has come: on a terminal in one line that
// changes, else only what goes wrong.
type progress struct {
	w        io.Writer
	terminal bool
	parts    int
	accepted int
}

// try is told of each try.
func (p *progress) try(t push.Progress) {
	if t.Err == nil {
		p.accepted++
	}
	if p.terminal {
		fmt.Fprintf(p.w, "\r\x1b[K%d of %d batches accepted", p.accepted, p.parts)
	}
	if t.Err != nil && t.Wait > 0 {
		separator := "; "
		if !p.terminal {
			separator = "sluice push: "
		}
		fmt.Fprintf(p.w, "%stry %d: %v; next in %s", separator, t.Try, t.Err, t.Wait.Round(time.Second/10))
		if !p.terminal {
			fmt.Fprintln(p.w)
		}
	}
}

func (p *progress) end() {
	if p.terminal {
		fmt.Fprintln(p.w)
	}
}
