package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sluice/lab"
	"sluice/lab/guest"
	"sluice/lab/image"
)

// bootTime is how long an image may take from power to its first reading at the
// collector. An emulated processor has no time to share.
const bootTime = 50 * time.Second

// appliance is a bench whose gateway is an image that is booted.
type appliance struct {
	*bench
	disk    string
	options image.Options
	broker  string // address on this machine that leads to the gateway's
}

// newAppliance makes a collector, and an image with a configuration on its FAT
// partition that leads there.
func newAppliance(t *testing.T) *appliance {
	t.Helper()
	if inGuest() {
		t.Skip("this is a guest, which has none of its own")
	}
	if testing.Short() {
		t.Skip("emulation takes minutes: run without -short")
	}
	a := &appliance{bench: newBench(t, lab.SiteOptions{}), broker: lab.FreeAddress("127.0.0.1")}
	a.disk = filepath.Join(t.TempDir(), "disk")
	programs := t.TempDir()
	a.must(guest.Build(a.ctx, guest.ARM64, programs, "sluice/cmd/sluice"))
	a.options = image.Options{Cache: guestCache, Sluice: filepath.Join(programs, "sluice"), FAT: make(map[string][]byte)}
	keys := a.site.GatewayKeys()
	for name, file := range map[string]string{"ca.crt": keys.CA, "gateway.crt": keys.Cert, "gateway.key": keys.Key} {
		content, err := os.ReadFile(file)
		a.must(err)
		a.options.FAT["certs/"+name] = content
	}
	a.options.FAT["sluice.toml"] = []byte(a.config())
	return a
}

// The networks of the two cards, as QEMU makes them: it hands out addresses, and
// whoever calls the address that ends with 2 reaches this machine's loopback.
const (
	wifi     = "10.0.2."
	cellular = "10.0.3."
)

// config is what a technician writes.
func (a *appliance) config() string {
	_, port, err := net.SplitHostPort(a.site.Uplinks()[0])
	a.must(err)
	return fmt.Sprintf(`version = 1
[gateway]
id = %q
data_dir = "/data/sluice"
[broker]
listen = ["0.0.0.0:1883"]
anonymous_network = true
[uplink]
collectors = ["%s2:%s"]
server_name = %q
ca = "certs/ca.crt"
cert = "certs/gateway.crt"
key = "certs/gateway.key"
[[uplink.path]]
interface = "wlan*"
[[uplink.path]]
interface = "wwan*"
metered = true
collector = "%s2:%s"
`, lab.GatewayID, wifi, port, lab.ServerName, cellular, port)
}

// build makes the image.
func (a *appliance) build() {
	a.Helper()
	start := time.Now()
	a.must(image.Build(a.ctx, a.disk, a.options))
	a.Logf("made the image in %v", time.Since(start).Round(time.Second/10))
}

// boot switches the gateway on.
func (a *appliance) boot(clock string) *image.Machine {
	a.Helper()
	m, err := image.Start(a.ctx, image.MachineOptions{Disk: a.disk, Clock: clock, Cards: []string{
		"user,net=" + wifi + "0/24,ipv6=off,hostfwd=tcp:" + a.broker + "-:1883",
		"user,net=" + cellular + "0/24,ipv6=off",
	}})
	a.must(err)
	a.Cleanup(func() {
		m.Stop()
		for _, l := range m.Stages() {
			a.Logf("%6.1f s  %s", l.After.Seconds(), l.Text)
		}
		if a.Failed() {
			a.Log(m.Tail())
		}
	})
	return m
}

// publish sends messages to the gateway, until all are acknowledged.
func (a *appliance) publish(messages uint64) *lab.Load {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.ctx, bootTime)
	defer cancel()
	var feeds []lab.Feed
	for _, f := range a.feeds {
		feeds = append(feeds, f)
	}
	load := lab.StartLoad(a.ctx, lab.LoadOptions{Address: a.broker, Feeds: feeds, Window: 10, Messages: messages / publishers})
	a.must(load.Wait(ctx))
	return load
}

// F32: a card with a configuration on its FAT partition is put in, power comes,
// and readings arrive.
func TestImageFirstBoot(t *testing.T) {
	a := newAppliance(t)
	a.build()
	a.must(a.site.StartCollector(a.ctx))
	start := time.Now()
	m := a.boot("")
	ctx, cancel := context.WithTimeout(a.ctx, bootTime)
	defer cancel()
	_, err := m.Await(ctx, "S50config")
	a.must(err)
	load := a.publish(publishers)
	t.Logf("%6.1f s  the first readings are acknowledged", time.Since(start).Seconds())
	a.settleDelivered(load)
	t.Logf("%6.1f s  the first readings are delivered", time.Since(start).Seconds())
	a.check(load)
}

// settleDelivered waits until what was acknowledged is at the output.
func (a *appliance) settleDelivered(load *lab.Load) {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.ctx, bootTime)
	defer cancel()
	a.must(a.oracle.Await(ctx, a.tally.Add, func() bool { return a.tally.Compare(load).Lost == 0 }))
}
