package main

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"sluice/lab"
)

// The publishers that the throughput is measured with.
const (
	publishers = 8
	devices    = 4 // of each publisher
	window     = 100
	values     = uint64(len(lab.SensorFields)) // of each message
)

// sensors returns the publishers' feeds, also as what a load takes.
func sensors() ([]*lab.Sensors, []lab.Feed) {
	var ss []*lab.Sensors
	var fs []lab.Feed
	for p := range publishers {
		s := lab.NewSensors(p, devices)
		ss, fs = append(ss, s), append(fs, s)
	}
	return ss, fs
}

// throughput measures messages acknowledged and delivered at full speed.
func (b *benchmark) throughput(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	site, err := b.site(ctx, "throughput", lab.SiteOptions{Quota: "2GB"})
	if err != nil {
		return err
	}
	defer site.Close()
	if err := site.Start(ctx); err != nil {
		return err
	}
	oracle := site.Oracle()
	counter, err := oracle.Follow(ctx, "")
	if err != nil {
		return err
	}
	defer counter.Close()
	feeds, load := sensors()
	perPublisher := b.scale(100_000, 15_000)
	total := perPublisher * publishers
	before, err := b.usage(site)
	if err != nil {
		return err
	}
	start := time.Now()
	publishing := lab.StartLoad(ctx, lab.LoadOptions{Address: site.Broker(), Feeds: load, Window: window, Messages: perPublisher})
	acked := make(chan time.Duration, 1)
	go func() {
		<-publishing.Done()
		acked <- time.Since(start)
	}()
	if err := counter.Await(ctx, total*values); err != nil {
		return err
	}
	delivered := time.Since(start)
	if err := publishing.Wait(ctx); err != nil {
		return err
	}
	after, err := b.usage(site)
	if err != nil {
		return err
	}
	rate := func(d time.Duration) float64 { return float64(total) / d.Seconds() }
	b.figures.add("acknowledged", "acknowledged after fsync", rate(<-acked), "messages/s")
	b.figures.add("end_to_end", "end to end, readable in JetStream", rate(delivered), "messages/s")
	for i, name := range []string{"gateway", "collector", "publishers"} {
		cpu := (after[i].CPU - before[i].CPU).Seconds() * 1e6 / float64(total)
		b.figures.add("cpu_"+name, "CPU of the "+name, cpu, "us/message")
	}
	b.figures.add("memory_gateway", "memory of the gateway at full speed, peak", float64(after[0].Peak)/1e6, "MB")
	b.figures.add("memory_collector", "memory of the collector at full speed, peak", float64(after[1].Peak)/1e6, "MB")

	tally := lab.NewTally(feeds)
	if err := oracle.Advance(ctx, tally.Add); err != nil {
		return err
	}
	if verdict := tally.Compare(publishing); !verdict.OK() {
		return fmt.Errorf("check the output: %s", verdict)
	}
	return site.Stop(ctx)
}

// usage reads what gateway, collector and the lab itself have used.
func (b *benchmark) usage(site *lab.Site) ([3]lab.Usage, error) {
	var u [3]lab.Usage
	var err error
	if u[0], err = lab.ReadUsage(site.Gateway.PID()); err != nil {
		return u, err
	}
	if u[1], err = lab.ReadUsage(site.Collector.PID()); err != nil {
		return u, err
	}
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		return u, fmt.Errorf("read own usage: %w", err)
	}
	u[2].CPU = time.Duration(own.Utime.Nano() + own.Stime.Nano())
	return u, nil
}

// mosquitto measures the same publishers against a broker with a bridge to a
// second one.
func (b *benchmark) mosquitto(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	far, near := lab.FreeAddress("127.0.0.1"), lab.FreeAddress("127.0.0.1")
	second, err := lab.StartMosquitto(ctx, lab.MosquittoOptions{Dir: b.dir, Name: "far", Address: far})
	if err != nil {
		return err
	}
	defer second.Kill()
	subscriber, err := lab.Subscribe(ctx, far)
	if err != nil {
		return err
	}
	defer subscriber.Close()
	first, err := lab.StartMosquitto(ctx, lab.MosquittoOptions{Dir: b.dir, Name: "near", Address: near, Bridge: far})
	if err != nil {
		return err
	}
	defer first.Kill()
	// One message through shows that the bridge is up.
	probe := lab.StartLoad(ctx, lab.LoadOptions{Address: near, Feeds: []lab.Feed{lab.NewSensors(99, 1)}, Window: 1, Messages: 1})
	if err := subscriber.Await(ctx, 1); err != nil {
		return err
	}
	if err := probe.Wait(ctx); err != nil {
		return err
	}
	_, feeds := sensors()
	perPublisher := b.scale(100_000, 15_000)
	total := perPublisher * publishers
	start := time.Now()
	load := lab.StartLoad(ctx, lab.LoadOptions{Address: near, Feeds: feeds, Window: window, Messages: perPublisher})
	if err := subscriber.Await(ctx, total); err != nil {
		return err
	}
	b.figures.add("mosquitto_end_to_end", "mosquitto with a bridge, end to end, nothing on disk", float64(total)/time.Since(start).Seconds(), "messages/s")
	return load.Wait(ctx)
}
