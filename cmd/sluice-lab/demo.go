package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"sluice/lab"
)

// demoDeadline bounds the whole demonstration.
const demoDeadline = 3 * time.Minute

// demo plays the recordings once through a new gateway and collector and reads
// the output stream back.
func demo(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	at, err := parse(flag.NewFlagSet("sluice-lab demo", flag.ContinueOnError), args, stderr)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, demoDeadline)
	defer cancel()
	replay, err := lab.LoadReplay(at.recordings)
	if err != nil {
		return err
	}
	messages := replay.Office.Minutes() * lab.MinuteMessages
	ledger, err := lab.NewLedger(replay, messages)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "sluice-demo-")
	if err != nil {
		return fmt.Errorf("make a folder for the demonstration: %w", err)
	}
	defer os.RemoveAll(dir)
	site, err := lab.NewSite(ctx, lab.SiteOptions{Dir: dir, Binaries: at.binaries, Extra: lab.ReplayRules})
	if err != nil {
		return err
	}
	defer site.Close()
	if err := site.Start(ctx); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "publishing %d recorded messages (%d rooms of an office, a laboratory) to %s\n",
		messages, lab.Rooms, site.Broker())
	start := time.Now()
	load := lab.StartLoad(ctx, lab.LoadOptions{
		Address: site.Broker(), Feeds: []lab.Feed{replay}, Window: 100, Messages: messages,
	})
	if err := load.Wait(ctx); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "all acknowledged as durable after %.1f s; reading the output stream %s\n",
		time.Since(start).Seconds(), site.OutputURL())
	oracle := site.Oracle()
	// Waiting ends with the deadline, or when nothing has come for a while:
	// then the rest is lost, and the line below says so.
	waiting := &patience{limit: 20 * time.Second}
	waitCtx, stop := context.WithCancel(ctx)
	defer stop()
	awaited := oracle.Await(waitCtx, ledger.Add, func() bool {
		lost, _ := ledger.Lost()
		if lost > 0 && !waiting.more(time.Now(), ledger.Delivered) {
			stop()
		}
		return lost == 0
	})
	// What comes twice comes after the first copy: nothing can follow once the
	// gateway has ended.
	if err := site.StopGateway(ctx); err != nil {
		return err
	}
	if err := oracle.Advance(ctx, ledger.Add); err != nil {
		return err
	}
	if err := site.Stop(ctx); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%.1f s in all\n", time.Since(start).Seconds())
	lost, example := ledger.Lost()
	if lost > 0 {
		fmt.Fprintf(stderr, "lost for one: %s (%v)\n", example, awaited)
	}
	if ledger.Doubled > 0 {
		fmt.Fprintf(stderr, "one too many: %s\n", ledger.Fault)
	}
	fmt.Fprintf(stdout, "delivered %d of %d, lost %d, doubled %d\n", ledger.Delivered, ledger.Expected, lost, ledger.Doubled)
	if lost+ledger.Doubled > 0 {
		return fmt.Errorf("the demonstration failed")
	}
	return nil
}

// patience ends when a count has not grown for a while.
type patience struct {
	limit time.Duration
	count uint64
	since time.Time
}

// more takes the present count and says whether to go on waiting.
func (p *patience) more(now time.Time, count uint64) bool {
	if p.since.IsZero() || count != p.count {
		p.count, p.since = count, now
	}
	return now.Sub(p.since) < p.limit
}
