package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/lab"
	"sluice/lab/guest"
	"sluice/lab/image"
)

// bootTime is how long an image may take from power to its first reading at the
// collector. An emulated processor has no time to share.
const bootTime = 80 * time.Second

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

// The networks of the cards, as QEMU makes them: it hands out addresses, and
// whoever calls the address that ends with 2 reaches this machine's loopback.
const (
	wifi     = "10.0.2."
	cellular = "10.0.3."
	sensors  = "10.0.4."
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

// boot switches the gateway on, with the clock at a time if that is not empty,
// and without Wi-Fi and cellular if so.
func (a *appliance) boot(clock string, offline bool) *image.Machine {
	a.Helper()
	const options = "0/24,ipv6=off"
	o := image.MachineOptions{Disk: a.disk, Clock: clock, Cards: []string{
		"user,net=" + wifi + options,
		"user,net=" + cellular + options,
		"user,net=" + sensors + options + ",hostfwd=tcp:" + a.broker + "-:1883",
	}}
	if offline {
		o.Off = []int{0, 1}
	}
	m, err := image.Start(a.ctx, o)
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

// delivered waits until what was acknowledged is at the output.
func (a *appliance) delivered(load *lab.Load) {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.ctx, bootTime)
	defer cancel()
	a.must(a.oracle.Await(ctx, a.tally.Add, func() bool { return a.tally.Compare(load).Lost == 0 }))
}

// says waits until the console says something.
func (a *appliance) says(m *image.Machine, text string) string {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.ctx, bootTime)
	defer cancel()
	line, err := m.Await(ctx, text)
	a.must(err)
	return line.Text
}

// F32: a card with a configuration on its FAT partition is put in, power comes,
// and readings arrive. The data partition has all of the card.
func TestImageFirstBoot(t *testing.T) {
	a := newAppliance(t)
	a.build()
	const more = 1 << 30
	info, err := os.Stat(a.disk)
	a.must(err)
	a.must(os.Truncate(a.disk, info.Size()+more))
	a.must(a.site.StartCollector(a.ctx))
	start := time.Now()
	m := a.boot("", false)
	grown := a.says(m, "data has ")
	var size int64
	_, text, _ := strings.Cut(grown, "data has ")
	if _, err := fmt.Sscanf(text, "%d KB", &size); err != nil || size<<10 < more*9/10 {
		t.Errorf("the card has %d bytes more, but the console says: %s (%v)", more, grown, err)
	}
	load := a.publish(publishers)
	t.Logf("%6.1f s  the first readings are acknowledged", time.Since(start).Seconds())
	a.delivered(load)
	t.Logf("%6.1f s  the first readings are delivered", time.Since(start).Seconds())
	a.check(load)
}

// F14: power comes, the clock is at 1970, and there is no network. What sensors
// send is kept, and delivered when there is a network.
func TestImageOfflineWithoutClock(t *testing.T) {
	a := newAppliance(t)
	a.build()
	a.must(a.site.StartCollector(a.ctx))
	m := a.boot("1970-01-01T00:00:00", true)
	load := a.publish(publishers)
	a.must(a.oracle.Advance(a.ctx, a.tally.Add))
	if delivered := a.tally.Compare(load).Delivered; delivered != 0 {
		t.Errorf("%d messages were delivered without a network", delivered)
	}
	for card := range 2 {
		a.must(m.Link(a.ctx, card, true))
	}
	start := time.Now()
	a.delivered(load)
	t.Logf("delivered %.1f s after there was a network", time.Since(start).Seconds())
	a.check(load)
}

// F33: the configuration on the FAT partition has a fault. The gateway starts
// with its default, and the FAT partition says what is wrong.
func TestImageWrongConfiguration(t *testing.T) {
	a := newAppliance(t)
	a.options.FAT["sluice.toml"] = []byte("version = 1\n[store]\nqouta = \"1GB\"\n")
	a.build()
	m := a.boot("", false)
	a.says(m, "config=/etc/sluice/default.toml")
	a.must(m.Stop())
	text, err := image.ReadFAT(a.ctx, a.disk, "sluice-errors.txt")
	a.must(err)
	t.Logf("%s", text)
	for _, want := range []string{":3:", "qouta", "quota"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("sluice-errors.txt does not say %q", want)
		}
	}
}
