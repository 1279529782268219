package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/term"

	"sluice/admin"
	"sluice/lab"
)

// Addresses that the README names, for publishing and reading by hand.
const (
	liveBroker = "127.0.0.1:1883"
	liveOutput = "127.0.0.1:4222"
)

// live plays the recordings through a gateway and collector that keep their
// data, until ctx ends.
func live(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	flags := flag.NewFlagSet("sluice-lab live", flag.ContinueOnError)
	dir := flags.String("dir", "var", "folder for keys, data and logs; starting again goes on where it was")
	speed := flags.Float64("speed", 60, "how many times faster than recorded")
	at, err := parse(flags, args, stderr)
	if err != nil {
		return err
	}
	replay, err := lab.LoadReplay(at.recordings)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(*dir, 0o755); err != nil {
		return fmt.Errorf("make folder %s: %w", *dir, err)
	}
	position := position(filepath.Join(*dir, "position"))
	resume, err := position.read()
	if err != nil {
		return err
	}
	site, err := lab.NewSite(ctx, lab.SiteOptions{
		Dir: *dir, Binaries: at.binaries, Broker: liveBroker, Output: liveOutput, Extra: lab.ReplayRules,
	})
	if err != nil {
		return err
	}
	defer site.Close()
	starting, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := site.Start(starting); err != nil {
		return err
	}
	load := lab.StartLoad(ctx, lab.LoadOptions{
		Address: site.Broker(), Feeds: []lab.Feed{replay}, Window: 100,
		Rate: lab.MinuteMessages / 60.0 * *speed, Resume: resume,
	})
	view := &view{out: stdout, broker: site.Broker(), output: site.OutputURL()}
	if f, ok := stdout.(*os.File); ok {
		view.redraw = term.IsTerminal(int(f.Fd()))
	}
	if err := watch(ctx, site, load, position, view); err != nil {
		return err
	}
	fmt.Fprintln(stdout, "\nstopping")
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	return errors.Join(site.Stop(ending), position.write(load.Positions()[0]))
}

// watch shows the status and keeps the position once a second until ctx ends.
// It returns an error when the gateway or the collector ends first.
func watch(ctx context.Context, site *lab.Site, load *lab.Load, position position, view *view) error {
	every := time.NewTicker(time.Second)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			<-load.Done()
			return nil
		case <-site.Gateway.Done():
			return fmt.Errorf("%s ended:\n%s", site.Gateway, site.Gateway.Tail())
		case <-site.Collector.Done():
			return fmt.Errorf("%s ended:\n%s", site.Collector, site.Collector.Tail())
		case <-every.C:
		}
		status, err := site.Status(ctx)
		if err != nil {
			continue // the gateway is on its way down, or slow: shown next time
		}
		message := load.Positions()[0]
		view.show(status, message)
		if err := position.write(message); err != nil {
			return err
		}
	}
}

// view shows a status: as a table that is redrawn, or as a line each time.
type view struct {
	out    io.Writer
	redraw bool
	broker string // where to publish
	output string // where to read
	lines  int    // of the table on the screen
	last   uint64
	at     time.Time
}

// show shows a status and the message that the replay has come to.
func (v *view) show(s admin.Status, message uint64) {
	rate := 0.0
	if !v.at.IsZero() {
		rate = float64(s.Ingest.Readings-v.last) / s.Time.Sub(v.at).Seconds()
	}
	v.last, v.at = s.Ingest.Readings, s.Time
	backlog, oldest := s.Store.Backlog()
	path := s.Uplink.Carrier
	if s.Uplink.Path != "" {
		path = s.Uplink.Path + ", " + path
	}
	link := fmt.Sprintf("%s (%s)", s.Uplink.State, s.Uplink.Reason)
	if s.Uplink.Up {
		link = fmt.Sprintf("%s to %s, round trip %.1f ms", path, s.Uplink.Remote, s.Uplink.RTTSeconds*1000)
	}
	if !v.redraw {
		fmt.Fprintf(v.out, "in %d (%.0f/s)  backlog %d, oldest %.1f s  delivered %d  duplicates %d  %s\n",
			s.Ingest.Readings, rate, backlog, oldest, s.Uplink.Delivered, s.Store.Duplicates, link)
		return
	}
	health := "well"
	if !s.Health.OK {
		health = strings.Join(s.Health.Reasons, "; ")
	}
	rows := [][2]string{
		{"publish to", "mqtt://" + v.broker},
		{"read from", v.output + ", stream SLUICE"},
		{"readings in", fmt.Sprintf("%d (%.0f/s) from %d messages", s.Ingest.Readings, rate, s.Ingest.Messages)},
		{"backlog", fmt.Sprintf("%d readings, oldest %.1f s", backlog, oldest)},
		{"delivered", strconv.FormatUint(s.Uplink.Delivered, 10)},
		{"duplicates", fmt.Sprintf("%d repeated by a sender and stored once", s.Store.Duplicates)},
		{"path in use", link},
		{"health", health},
		{"replay", fmt.Sprintf("message %d; Ctrl-C stops, starting again goes on from here", message)},
	}
	var b strings.Builder
	b.WriteString("\x1b[?7l") // long lines are cut, so that the table keeps its height
	if v.lines > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", v.lines) // back to the table's first line
	}
	for _, row := range rows {
		fmt.Fprintf(&b, "\x1b[2K%-12s %s\n", row[0], row[1])
	}
	b.WriteString("\x1b[?7h")
	v.lines = len(rows)
	io.WriteString(v.out, b.String())
}

// position is a file that says where the replay goes on.
type position string

// read returns the message to begin with, 0 if there is no file yet.
func (p position) read() (uint64, error) {
	b, err := os.ReadFile(string(p))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read position: %w", err)
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read position %s: %w; remove the file to begin anew", p, err)
	}
	return n, nil
}

// write replaces the file as a whole.
func (p position) write(message uint64) error {
	temporary := string(p) + ".new"
	if err := os.WriteFile(temporary, []byte(strconv.FormatUint(message, 10)+"\n"), 0o644); err != nil {
		return fmt.Errorf("keep position: %w", err)
	}
	if err := os.Rename(temporary, string(p)); err != nil {
		return fmt.Errorf("keep position: %w", err)
	}
	return nil
}
