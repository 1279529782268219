package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"sluice/admin"
	"sluice/lab"
)

// F1: the link is cut without a FIN or RST after 2 of 12 messages arrived. When
// it is back, all 12 are there once.
func TestField01LinkCutWithoutFIN(t *testing.T) {
	b := newBench(t, lab.SiteOptions{Cut: true, AckTimeout: 2 * time.Second, Flush: 20 * time.Millisecond})
	b.start()
	load := b.load(8, 12)
	b.must(b.oracle.Await(b.ctx, b.tally.Add, func() bool { return b.tally.Compare(load).Delivered >= 2 }))
	b.site.Cut.Silence()
	b.must(load.Wait(b.ctx))
	b.while(silence(t))
	b.site.Cut.Restore()
	if got := b.check(load).Delivered; got != 12 {
		b.Errorf("delivered %d of 12", got)
	}
}

// The link falls silent under load, stays so, and is restored.
func TestField01LinkSilentUnderLoad(t *testing.T) {
	b := newBench(t, lab.SiteOptions{Cut: true, AckTimeout: 2 * time.Second})
	b.start()
	load := b.load(2000, 0)
	b.moment(time.Second)
	b.site.Cut.Silence()
	b.while(silence(t))
	b.site.Cut.Restore()
	b.moment(time.Second)
	b.check(load)
}

// F2: the collector is down while messages come; all arrive, in order.
func TestField02ServerDownWhilePublishing(t *testing.T) {
	b := newBench(t, lab.SiteOptions{})
	b.must(b.site.StartGateway(b.ctx))
	load := b.publish(12)
	b.must(b.site.StartCollector(b.ctx))
	if got := b.check(load).Delivered; got != 12 {
		b.Errorf("delivered %d of 12", got)
	}
}

// F3: a long backlog drains over a slow link; alarms and live data are not
// delayed by it, and the age of the oldest reading is visible.
func TestField03BacklogDoesNotDelayAlarms(t *testing.T) {
	b := newBench(t, lab.SiteOptions{Cut: true, Speed: 200_000, Extra: `
[[alarm]]
device = "siren"
name = "ringing"
equals = true
`})
	b.must(b.site.StartGateway(b.ctx))
	load := b.publish(100_000)
	status, err := b.site.Status(b.ctx)
	b.must(err)
	if _, oldest := status.Store.Backlog(); oldest <= 0 {
		b.Errorf("age of the oldest reading: got %v s, want more than none", oldest)
	}
	b.must(b.site.StartCollector(b.ctx))
	b.must(b.site.AwaitStatus(b.ctx, "the backlog drains", func(s admin.Status) bool { return s.Uplink.Delivered > 0 }))
	for _, c := range []struct {
		lane, device, payload string
		limit                 time.Duration
	}{
		{"alarm", "siren", `{"ringing":true}`, 500 * time.Millisecond},
		{"live", "window", `{"open":true}`, time.Second},
	} {
		counter, err := b.oracle.Follow(b.ctx, c.lane)
		b.must(err)
		start := time.Now()
		sent := lab.StartLoad(b.ctx, lab.LoadOptions{
			Address: b.site.Broker(), Feeds: []lab.Feed{messages{{"zigbee2mqtt/" + c.device, c.payload}}}, Window: 1, Messages: 1,
		})
		b.must(counter.Await(b.ctx, 1))
		took := time.Since(start)
		counter.Close()
		b.must(sent.Wait(b.ctx))
		status, err := b.site.Status(b.ctx)
		b.must(err)
		backlog, oldest := status.Store.Backlog()
		b.Logf("%s arrived after %v, before %d readings of the backlog; oldest %.1f s", c.device, took, backlog, oldest)
		if backlog == 0 {
			b.Error("the backlog was gone before, so nothing was overtaken")
		}
		if took > c.limit {
			b.Errorf("%s took %v, want at most %v", c.device, took, c.limit)
		}
	}
	b.check(load)
}

// F9: the disk is really full. A gateway that may refuse goes on running, takes
// nothing in and says why; it resumes by itself, and nothing acknowledged is
// missing.
func TestField09DiskFull(t *testing.T) {
	b, other := newFullDisk(t, "reject")
	load := b.load(0, 0)
	b.must(b.site.AwaitStatus(b.ctx, "the status says that the disk is full", func(s admin.Status) bool { return s.Store.Paused != "" }))
	status, err := b.site.Status(b.ctx)
	b.must(err)
	b.Logf("paused: %s", status.Store.Paused)
	if status.Health.OK {
		b.Error("health is well although nothing is taken in")
	}
	b.while(time.Second) // no crash meanwhile
	b.must(os.Remove(other))
	b.must(b.site.AwaitStatus(b.ctx, "it resumes by itself", func(s admin.Status) bool { return s.Store.Paused == "" }))
	load.Stop()
	b.must(b.site.StartCollector(b.ctx))
	b.check(load)
}

// F9: a gateway that may drop the oldest makes way on a full disk as it does at
// the quota, and counts what it removes.
func TestField09DiskFullDropsOldest(t *testing.T) {
	b, _ := newFullDisk(t, "drop-oldest")
	load := b.publish(300_000)
	b.must(b.site.StartCollector(b.ctx))
	b.settle(b.tally.Add)
	b.checkRemoved(load)
}

// newFullDisk starts a gateway on a small disk that something else, a file,
// fills up to a little.
func newFullDisk(t *testing.T, policy string) (b *bench, other string) {
	t.Helper()
	disk := smallDisk(t, "16m")
	other = filepath.Join(disk, "other")
	if err := os.WriteFile(other, make([]byte, 12<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	b = newBench(t, lab.SiteOptions{GatewayData: filepath.Join(disk, "gateway"), Quota: "1GB", Policy: policy})
	b.must(b.site.StartGateway(b.ctx))
	return b, other
}

// F11: bytes are overwritten inside the store's file, or it is cut to half. The
// gateway starts, keeps what can be read, moves the damaged file aside, says so
// and goes on.
func TestField11DamagedFile(t *testing.T) {
	tests := []struct {
		name   string
		damage func(b *bench, path string, size int64) error
	}{
		{"overwritten", func(b *bench, path string, size int64) error {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			for range 8 {
				junk := make([]byte, 2000)
				for i := range junk {
					junk[i] = byte(b.random.Uint32())
				}
				if _, err := f.WriteAt(junk, b.random.Int64N(size-2000)); err != nil {
					return err
				}
			}
			return nil
		}},
		{"beginning overwritten", func(_ *bench, path string, _ int64) error {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.WriteAt(make([]byte, 8192), 0)
			return err
		}},
		{"cut to half", func(_ *bench, path string, size int64) error { return os.Truncate(path, size/2) }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t, lab.SiteOptions{})
			b.must(b.site.StartGateway(b.ctx))
			load := b.publish(20_000)
			b.killGateway()
			path, size := storeFile(b)
			b.must(test.damage(b, path, size))
			b.start()
			b.settle(b.tally.Add)
			status, err := b.site.Status(b.ctx)
			b.must(err)
			b.Logf("set aside %q, salvaged %d, damaged %d readings", status.Store.SetAside, status.Store.Salvaged, status.Store.Damaged)
			old := b.tally.Compare(load)
			b.Log(old)
			if old.Doubled+old.Disordered+old.Wrong != 0 {
				b.Error(old)
			}
			if old.Lost > 0 && status.Store.SetAside == "" && status.Store.Damaged == 0 {
				b.Error("readings were lost to the damage and the status does not say so")
			}
			if status.Store.SetAside != "" {
				if _, err := os.Stat(status.Store.SetAside); err != nil {
					b.Errorf("the damaged file was not kept: %v", err)
				}
			}
			fresh := messages{{"zigbee2mqtt/after", `{"well":true}`}}
			b.must(lab.StartLoad(b.ctx, lab.LoadOptions{Address: b.site.Broker(), Feeds: []lab.Feed{fresh}, Window: 1, Messages: 1}).Wait(b.ctx))
			seen := false
			b.must(b.oracle.Await(b.ctx, func(r lab.Record) { seen = seen || r.Device == "after" }, func() bool { return seen }))
		})
	}
}

// storeFile finds the largest file of the gateway's data: the queue.
func storeFile(b *bench) (path string, size int64) {
	b.Helper()
	b.must(filepath.Walk(b.site.GatewayDir(), func(p string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() && filepath.Ext(p) == ".db" && info.Size() > size {
			path, size = p, info.Size()
		}
		return err
	}))
	if path == "" {
		b.Fatalf("no store in %s", b.site.GatewayDir())
	}
	return path, size
}
