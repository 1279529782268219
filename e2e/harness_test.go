package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"sluice/lab"
)

// binaries is the folder of the programs under test.
var binaries string

func TestMain(m *testing.M) {
	os.Exit(runAll(m))
}

// runAll builds the programs once and runs the tests.
func runAll(m *testing.M) int {
	if inGuest() {
		binaries = guestBinaries
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "sluice-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	build := exec.Command("go", "build", "-o", dir+string(filepath.Separator), "sluice/cmd/sluice", "sluice/cmd/sluice-collector")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintf(os.Stderr, "build the programs under test: %v\n", err)
		return 1
	}
	binaries = dir
	return m.Run()
}

// deadline bounds one test.
const deadline = 4 * time.Minute

// kills is a test's share, in percent, of the kills of a whole run.
func kills(t *testing.T, percent int) int {
	all := 40
	if s := os.Getenv("SLUICE_KILLS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			t.Fatalf("SLUICE_KILLS is %q: give the number of kills", s)
		}
		all = n
	}
	return max(1, all*percent/100)
}

// silence is for how long a link stays cut.
func silence(t *testing.T) time.Duration {
	s := os.Getenv("SLUICE_CUT")
	if s == "" {
		return 5 * time.Second
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatalf("SLUICE_CUT is %q: give a duration such as 60s", s)
	}
	return d
}

// bench is a site under load, with the oracle that watches its output.
type bench struct {
	*testing.T
	ctx    context.Context
	site   *lab.Site
	oracle *lab.Oracle
	random *rand.Rand
	feeds  []*lab.Sensors
	tally  *lab.Tally
}

// publishers is how many clients publish in a test.
const publishers = 4

// newBench makes a site whose programs do not run yet.
func newBench(t *testing.T, o lab.SiteOptions) *bench {
	t.Helper()
	limit := deadline
	if at, ok := t.Deadline(); ok {
		limit = min(limit, time.Until(at)-10*time.Second)
	}
	if os.Getenv("SLUICE_KILLS") != "" {
		limit = time.Hour
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("SLUICE_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("SLUICE_SEED is %q: give the number that the other run printed", s)
		}
	}
	t.Logf("SLUICE_SEED=%d", seed)
	o.Dir, o.Binaries = t.TempDir(), binaries
	site, err := lab.NewSite(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, ctx: ctx, site: site, oracle: site.Oracle(), random: rand.New(rand.NewPCG(seed, 0))}
	for p := range publishers {
		b.feeds = append(b.feeds, lab.NewSensors(p, 2))
	}
	b.tally = lab.NewTally(b.feeds)
	t.Cleanup(func() {
		if t.Failed() {
			for _, p := range []*lab.Process{site.Gateway, site.Collector} {
				if p != nil {
					t.Logf("%s printed last:\n%s", p, p.Tail())
				}
			}
		}
		site.Close()
	})
	return b
}

// must fails the test at once if err is not nil.
func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// start starts both programs.
func (b *bench) start() {
	b.Helper()
	b.must(b.site.Start(b.ctx))
}

// load starts the publishers; the rate is per second and for all of them, 0 for
// as fast as they can, and so is the number of messages, 0 for no end.
func (b *bench) load(rate float64, messages uint64) *lab.Load {
	var feeds []lab.Feed
	for _, f := range b.feeds {
		feeds = append(feeds, f)
	}
	return lab.StartLoad(b.ctx, lab.LoadOptions{
		Address: b.site.Broker(), Dial: b.site.Dial, Feeds: feeds, Window: 100,
		Rate: rate / publishers, Messages: messages / publishers,
	})
}

// publish sends messages and waits until all are acknowledged.
func (b *bench) publish(messages uint64) *lab.Load {
	b.Helper()
	load := b.load(0, messages)
	b.must(load.Wait(b.ctx))
	return load
}

// while lets time pass and fails if a program ends by itself meanwhile.
func (b *bench) while(d time.Duration) {
	b.Helper()
	t := time.NewTimer(d)
	defer t.Stop()
	var gateway, collector <-chan struct{}
	if b.site.Gateway != nil {
		gateway = b.site.Gateway.Done()
	}
	if b.site.Collector != nil {
		collector = b.site.Collector.Done()
	}
	select {
	case <-t.C:
	case <-gateway:
		b.Fatalf("%s ended by itself:\n%s", b.site.Gateway, b.site.Gateway.Tail())
	case <-collector:
		b.Fatalf("%s ended by itself:\n%s", b.site.Collector, b.site.Collector.Tail())
	case <-b.ctx.Done():
		b.Fatal("time is up")
	}
}

// moment lets a random time pass, up to most.
func (b *bench) moment(most time.Duration) {
	b.Helper()
	b.while(time.Duration(b.random.Int64N(int64(most))))
}

// killGateway takes the gateway's power away.
func (b *bench) killGateway() {
	b.site.Gateway.Kill()
	b.site.Gateway = nil
}

// killCollector takes the collector's power away.
func (b *bench) killCollector() {
	b.site.Collector.Kill()
	b.site.Collector = nil
}

// settle waits until the gateway says that it has nothing left to deliver, and
// reads the output that far.
func (b *bench) settle(each func(lab.Record)) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 90*time.Second)
	defer cancel()
	b.must(b.site.AwaitEmpty(ctx))
	b.must(b.oracle.Await(ctx, each, func() bool { return true }))
}

// check ends a load, waits until what was acknowledged has arrived, stops the
// gateway so that nothing can follow, and has the oracle compare.
func (b *bench) check(load *lab.Load) lab.Result {
	b.Helper()
	return b.checkEach(load, b.tally.Add)
}

// checkEach is check for a test that looks at the records itself, too; each
// must hand them to the tally.
func (b *bench) checkEach(load *lab.Load, each func(lab.Record)) lab.Result {
	b.Helper()
	load.Stop()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	b.must(load.Wait(ctx))
	arrived := b.oracle.Await(ctx, each, func() bool { return b.tally.Compare(load).Lost == 0 })
	ending, cancel := context.WithTimeout(b.ctx, 20*time.Second)
	defer cancel()
	b.must(b.site.StopGateway(ending))
	b.must(b.oracle.Await(ending, each, func() bool { return true }))
	verdict := b.tally.Compare(load)
	b.Logf("%s; the publishers reconnected %d times", verdict, load.Reconnects())
	if !verdict.OK() {
		b.Errorf("a promise is broken: %s (%v)", verdict, arrived)
	}
	if verdict.Acked == 0 {
		b.Error("nothing was acknowledged, so nothing was tested")
	}
	return verdict
}

// checkRemoved checks, after settle, that what a policy has removed is what is
// missing, and that the rest is in order.
func (b *bench) checkRemoved(load *lab.Load) {
	b.Helper()
	status, err := b.site.Status(b.ctx)
	b.must(err)
	var removed uint64
	for _, n := range status.Store.Removed {
		removed += n
	}
	verdict := b.tally.Compare(load)
	b.Logf("%s; removed %v", verdict, status.Store.Removed)
	if verdict.Delivered == 0 || verdict.Lost == 0 {
		b.Error("nothing was removed, or nothing kept")
	}
	if want := verdict.Lost * uint64(len(lab.SensorFields)); removed != want {
		b.Errorf("counted as removed: %d readings, missing: %d", removed, want)
	}
	if verdict.Doubled+verdict.Disordered+verdict.Wrong != 0 {
		b.Error(verdict)
	}
}
