package update

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// How long the parts of an update may take. A bundle of 256 MiB on a worn SD card
// is written at about 3 MB/s, and may be read back.
const (
	askTime     = 30 * time.Second
	verifyTime  = 2 * time.Minute
	installTime = 20 * time.Minute
	killTime    = 5 * time.Second // from being asked to end until being killed
)

// maxOutput is what is kept of a program's output, in bytes.
const maxOutput = 64 << 10

// Rauc runs the program of that name.
type Rauc struct {
	Program string // its path; empty for the one in PATH
	Config  string // its configuration; empty for /etc/rauc/system.conf
}

// Bundle is what a bundle says of itself.
type Bundle struct {
	Compatible string `json:"compatible"` // the board that it is for, "sluice-<board>"
	Version    string `json:"version"`
}

// System is what RAUC says of this machine.
type System struct {
	Compatible string `json:"compatible"` // which board this is
}

// Info reads a bundle whose signature is right; another is an error.
func (r Rauc) Info(ctx context.Context, file string) (Bundle, error) {
	var b Bundle
	return b, r.ask(ctx, verifyTime, &b, "info", "--output-format=json", file)
}

// Status reads what RAUC knows of this machine.
func (r Rauc) Status(ctx context.Context) (System, error) {
	var s System
	return s, r.ask(ctx, askTime, &s, "status", "--output-format=json")
}

// Install writes a bundle to the system that does not run, and has the boot
// loader start it next. line is called with each line of progress.
func (r Rauc) Install(ctx context.Context, file string, line func(string)) error {
	_, err := r.run(ctx, installTime, line, "install", file)
	return err
}

// MarkGood tells the boot loader that the system that runs works.
func (r Rauc) MarkGood(ctx context.Context) error {
	_, err := r.run(ctx, askTime, nil, "status", "mark-good")
	return err
}

// MarkBad tells the boot loader not to start the system that runs again.
func (r Rauc) MarkBad(ctx context.Context) error {
	_, err := r.run(ctx, askTime, nil, "status", "mark-bad")
	return err
}

// ask runs rauc and decodes its answer.
func (r Rauc) ask(ctx context.Context, within time.Duration, answer any, args ...string) error {
	out, err := r.run(ctx, within, nil, args...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(out, answer); err != nil {
		return fmt.Errorf("rauc %s: its answer cannot be read: %w", args[0], err)
	}
	return nil
}

// run returns what rauc wrote to its standard output.
func (r Rauc) run(ctx context.Context, within time.Duration, line func(string), args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("it did not end within %s", within))
	defer cancel()
	name := args[0]
	if r.Config != "" {
		args = append([]string{"--conf=" + r.Config}, args...)
	}
	cmd := exec.CommandContext(ctx, cmp.Or(r.Program, "rauc"), args...)
	stdout, stderr := &output{line: line}, &output{}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = killTime
	err := cmd.Run()
	switch {
	case err == nil:
		return stdout.kept, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("rauc %s: %w", name, context.Cause(ctx))
	case errors.Is(err, exec.ErrNotFound):
		return nil, fmt.Errorf("rauc: %w; only the appliance's image has it", exec.ErrNotFound)
	}
	return nil, fmt.Errorf("rauc %s: %s", name, explain(string(stdout.kept)+"\n"+string(stderr.kept), err))
}

// output keeps the end of what a program writes, and hands on its lines.
type output struct {
	line  func(string) // may be nil
	kept  []byte
	shown int // so much of kept was handed on
}

func (o *output) Write(p []byte) (int, error) {
	o.kept = append(o.kept, p...)
	for o.line != nil {
		n := bytes.IndexByte(o.kept[o.shown:], '\n')
		if n < 0 {
			break
		}
		o.line(string(o.kept[o.shown : o.shown+n]))
		o.shown += n + 1
	}
	if over := len(o.kept) - maxOutput; over > 0 {
		o.kept, o.shown = slices.Delete(o.kept, 0, over), max(0, o.shown-over)
	}
	return len(p), nil
}

// explain says in plain words why rauc failed, from what it wrote.
func explain(written string, err error) string {
	lower := strings.ToLower(written)
	for _, f := range []struct{ said, means string }{
		{"no space left on device", "no space: the bundle is larger than the system that it replaces may be, or the data partition is full"},
		{"compatible mismatch", "the bundle is for another board: take the one for this board"},
		{"certificate is not yet valid", "the bundle's signature is not valid yet: wait until this machine's clock is set, which sluice status shows"},
		{"certificate has expired", "the key that signed the bundle has expired: have it signed with a key that is valid"},
		{"signature verification failed", "wrong signature: it is not signed with a key that this system trusts, or was changed since; take the bundle from its maker again"},
		{"invalid bundle format", "this is no bundle, or not a whole one: copy or fetch it again"},
		{"already processing a different method", "another installation is under way: wait until it has ended"},
	} {
		if strings.Contains(lower, f.said) {
			return f.means + " (" + last(written, f.said) + ")"
		}
	}
	return cmp.Or(last(written, ""), err.Error())
}

// last returns the last line that contains part, whatever its case; without part,
// the last that is no mere message.
func last(written, part string) string {
	lines := strings.Split(strings.TrimSpace(written), "\n")
	for _, l := range slices.Backward(lines) {
		if part != "" && strings.Contains(strings.ToLower(l), part) || part == "" && !strings.HasPrefix(l, "rauc-Message") {
			return strings.TrimSpace(l)
		}
	}
	return ""
}
