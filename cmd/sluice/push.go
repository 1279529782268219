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

	"golang.org/x/term"

	"sluice/ingest/push"
	"sluice/reading"
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
			return fmt.Errorf("token: %w; give the file that holds this node's token alone", err)
		}
		client.Token = strings.TrimSpace(string(token))
	}
	if client.Node == "" && client.Token == "" {
		return errors.New("no name for this node: write --node NAME, or --token-file FILE if the gateway gave it a token")
	}
	file := operands[0]
	pack, err := readPack(file)
	if err != nil {
		return err
	}
	contentType, parts, err := cut(pack, file == "-")
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	show := newProgress(stderr, len(parts))
	client.Progress = show.try
	for _, part := range parts {
		err := client.Push(ctx, part.Body, contentType, part.ID)
		if err == nil {
			continue
		}
		show.end()
		remedy := ""
		if ctx.Err() != nil {
			remedy = "; push the same again: what was accepted is stored once"
		}
		return fmt.Errorf("%s: %w%s", file, err, remedy)
	}
	show.end()
	_, err = fmt.Fprintf(stdout, "accepted: %d bytes, batches: %d\n", len(pack), len(parts))
	return err
}

// cut makes batches of a pack, and reads them as the gateway will: what is wrong
// is known before there is a connection.
//
// A file is the same batches however often it is pushed. What comes through a
// pipe is so only if its records say when they were measured; else it is
// something new each time.
func cut(pack []byte, pipe bool) (contentType string, parts []push.Part, err error) {
	if contentType = push.TypeOf(pack); contentType == "" {
		return "", nil, errors.New("it holds no SenML, which is a JSON or CBOR array of records (RFC 8428)")
	}
	if parts, err = push.Parts(pack, contentType); err != nil {
		return "", nil, err
	}
	now := time.Now()
	for i := range parts {
		b, err := push.Decode(contentType, "", parts[i].Body, reading.Time{Wall: now.UnixNano()}, maxPack)
		if err != nil {
			return "", nil, err
		}
		if pipe && b.Receipt == (reading.Receipt{}) {
			parts[i].ID += fmt.Sprintf("-at-%d", now.UnixNano())
		}
	}
	return contentType, parts, nil
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
			return nil, fmt.Errorf("%w; name a SenML file, or - for the standard input", err)
		}
		defer in.Close()
	}
	pack, err := io.ReadAll(io.LimitReader(in, maxPack+1))
	if err != nil {
		return nil, fmt.Errorf("%w; name a SenML file, or - for the standard input", err)
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
	width    int // of the terminal; 0 if w is none
	parts    int
	accepted int
}

func newProgress(w io.Writer, parts int) *progress {
	p := &progress{w: w, parts: parts}
	if isTerminal(w) {
		p.width = 80
		if n, _, err := term.GetSize(int(w.(*os.File).Fd())); err == nil && n > 0 {
			p.width = n
		}
	}
	return p
}

// try is told of each try.
func (p *progress) try(t push.Progress) {
	if t.Err == nil {
		p.accepted++
	}
	line := ""
	if t.Err != nil && t.Wait > 0 {
		line = fmt.Sprintf("try %d, next in %s: %v", t.Try, t.Wait.Round(time.Second/10), t.Err)
	}
	if p.width == 0 {
		if line != "" {
			fmt.Fprintf(p.w, "sluice push: %s\n", line)
		}
		return
	}
	line = fmt.Sprintf("accepted %d of %d  %s", p.accepted, p.parts, line)
	// A line that wraps could not be cleared.
	fmt.Fprintf(p.w, "\r\x1b[K%s", line[:min(len(line), p.width-1)])
}

func (p *progress) end() {
	if p.width > 0 {
		fmt.Fprintln(p.w)
	}
}
