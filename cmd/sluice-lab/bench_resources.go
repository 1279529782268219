package main

import (
	"context"
	"time"

	"sluice/lab"
)

// memory measures the gateway while a large backlog drains.
func (b *benchmark) memory(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	site, err := b.site(ctx, "memory", lab.SiteOptions{Quota: "2GB"})
	if err != nil {
		return err
	}
	defer site.Close()
	if err := site.StartGateway(ctx); err != nil {
		return err
	}
	readings := b.scale(2_000_000, 200_000)
	perPublisher := (readings/values + publishers) / publishers
	_, feeds := sensors()
	load := lab.StartLoad(ctx, lab.LoadOptions{Address: site.Broker(), Feeds: feeds, Window: window, Messages: perPublisher})
	if err := load.Wait(ctx); err != nil {
		return err
	}
	filled, err := lab.ReadUsage(site.Gateway.PID())
	if err != nil {
		return err
	}
	if err := lab.ResetPeak(site.Gateway.PID()); err != nil {
		return err
	}
	start := time.Now()
	if err := site.StartCollector(ctx); err != nil {
		return err
	}
	if err := site.AwaitEmpty(ctx); err != nil {
		return err
	}
	drained := time.Since(start)
	after, err := lab.ReadUsage(site.Gateway.PID())
	if err != nil {
		return err
	}
	millions := number(float64(perPublisher*publishers*values) / 1e6)
	b.figures.add("memory_filling", "memory of the gateway while "+millions+" million readings pile up, peak", float64(filled.Peak)/1e6, "MB")
	b.figures.add("memory_draining", "memory of the gateway while they drain, peak", float64(after.Peak)/1e6, "MB")
	b.figures.add("drain", "drain of that backlog", float64(perPublisher*publishers*values)/drained.Seconds(), "readings/s")
	return site.Stop(ctx)
}

// disk measures what the gateway writes to storage at two speeds.
func (b *benchmark) disk(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	site, err := b.site(ctx, "disk", lab.SiteOptions{})
	if err != nil {
		return err
	}
	defer site.Close()
	if err := site.Start(ctx); err != nil {
		return err
	}
	for _, c := range []struct {
		name, what string
		rate       float64
		messages   uint64
	}{
		{"slow", "10 messages/s", 10, b.scale(300, 80)},
		{"fast", "5000 messages/s", 5000, b.scale(60_000, 24_000)},
	} {
		_, feeds := sensors()
		before, counted, err := b.written(ctx, site)
		if err != nil {
			return err
		}
		load := lab.StartLoad(ctx, lab.LoadOptions{
			Address: site.Broker(), Feeds: feeds, Window: window, Messages: c.messages / publishers, Rate: c.rate / publishers,
		})
		if err := load.Wait(ctx); err != nil {
			return err
		}
		if err := site.AwaitEmpty(ctx); err != nil {
			return err
		}
		after, countedAfter, err := b.written(ctx, site)
		if err != nil {
			return err
		}
		readings := float64(c.messages / publishers * publishers * values)
		b.figures.add("written_"+c.name, "written to disk by the gateway at "+c.what, float64(after-before)/readings, "bytes/reading")
		b.figures.add("written_store_"+c.name, "the same by the store's own count", float64(countedAfter-counted)/readings, "bytes/reading")
	}
	return site.Stop(ctx)
}

// written reads how much the gateway has written, by the kernel's count and by
// its own.
func (b *benchmark) written(ctx context.Context, site *lab.Site) (kernel int64, own uint64, err error) {
	u, err := lab.ReadUsage(site.Gateway.PID())
	if err != nil {
		return 0, 0, err
	}
	status, err := site.Status(ctx)
	return u.Written, status.Store.WrittenBytes, err
}

// idle measures what gateway and collector use when nothing happens.
func (b *benchmark) idle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	site, err := b.site(ctx, "idle", lab.SiteOptions{})
	if err != nil {
		return err
	}
	defer site.Close()
	if err := site.Start(ctx); err != nil {
		return err
	}
	rest := func(d time.Duration) error {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := rest(3 * time.Second); err != nil {
		return err
	}
	before, err := b.usage(site)
	if err != nil {
		return err
	}
	const span = 10 * time.Second
	if err := rest(span); err != nil {
		return err
	}
	after, err := b.usage(site)
	if err != nil {
		return err
	}
	for i, name := range []string{"gateway", "collector"} {
		b.figures.add("idle_"+name, "CPU of the "+name+" when nothing happens", 100*(after[i].CPU-before[i].CPU).Seconds()/span.Seconds(), "% of one core")
	}
	return site.Stop(ctx)
}
