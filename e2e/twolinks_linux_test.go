package e2e

import (
	"context"
	"slices"
	"testing"
	"time"

	"sluice/admin"
	"sluice/lab"
	"sluice/lab/topology"
	"sluice/uplink/sctp"
)

// Promise 8, F16: the gateway has two links, and the preferred one dies silently
// under load. Readings go on by the other within two seconds, nothing is lost or
// doubled, and once the link is back and has proved itself the gateway returns
// to using it.
func TestPromise8SilentDeathOfALink(t *testing.T) {
	needSCTP(t)
	for _, u := range underlays() {
		t.Run(u.name, func(t *testing.T) {
			network, o := twoLinks(t, u)
			b := newBench(t, o)
			b.start()
			load := b.load(100, 0)
			b.await("SCTP uses wlan0 and could use wwan0", func(s admin.Status) bool {
				return s.Uplink.Carrier == "sctp" && primary(s) == "wlan0" && usable(s, "wwan0")
			})
			b.watch("both links well", 2*time.Second, time.Second)
			b.must(network.Paths[0].Cut())
			b.watch("wlan0 silent", 5*time.Second, 2*time.Second)
			b.await("the status says that wlan0 is gone", func(s admin.Status) bool {
				return primary(s) == "wwan0" && !usable(s, "wlan0")
			})
			b.must(network.Paths[0].Restore())
			b.await("wlan0 is usable again", func(s admin.Status) bool { return usable(s, "wlan0") })
			b.watch("both links well again", 2*time.Second, time.Second)
			b.must(network.Paths[1].Cut())
			b.watch("wwan0 silent", 5*time.Second, 2*time.Second)
			status, err := b.site.Status(b.ctx)
			b.must(err)
			for _, s := range status.Uplink.Switches {
				t.Logf("switched from %s to %s: %s", s.From, s.To, s.Reason)
			}
			b.must(network.Paths[1].Restore())
			b.check(load)
		})
	}
}

// underlay is what SCTP goes over, as both ends are configured.
type underlay struct {
	name              string
	uplink, collector string
	own               bool // the collector has an address of its own by each path
}

func underlays() []underlay {
	return []underlay{
		{name: "bare", uplink: `underlay = "bare"`, own: true},
		{name: "tunnel", collector: "[tunnel]\n"},
	}
}

// tunnels is the underlay by default.
func tunnels() underlay { return underlays()[1] }

// twoLinks makes a gateway with two links to its collector, and the options of a
// site on them.
func twoLinks(t *testing.T, u underlay) (*topology.Multipath, lab.SiteOptions) {
	t.Helper()
	// Far below what an emulated processor can carry.
	link := topology.Quality{Rate: 8_000_000, Delay: 10 * time.Millisecond, Limit: 100}
	network, err := topology.NewMultipath(
		topology.PathOptions{Device: "wlan0", Up: link, Down: link},
		topology.PathOptions{Device: "wwan0", Up: link, Down: link},
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { network.Close() })
	o := lab.SiteOptions{
		Near: network.Gateway, Far: network.Collector, Reach: []string{network.Common.String()},
		Uplink: u.uplink, CollectorTables: u.collector, Flush: 50 * time.Millisecond,
	}
	for _, p := range network.Paths {
		path := lab.SitePath{Interface: p.Access.A.Device}
		if u.own {
			path.Collector = p.Exit.B.Address().String()
		}
		o.Paths = append(o.Paths, path)
	}
	return network, o
}

// await waits until the status is as it should be, and fails if that takes long.
func (b *bench) await(what string, ok func(admin.Status) bool) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 30*time.Second)
	defer cancel()
	b.must(b.site.AwaitStatus(ctx, what, ok))
}

// watch looks at the output for a while and fails if nothing comes for longer
// than most.
func (b *bench) watch(what string, during, most time.Duration) {
	b.Helper()
	counter, err := b.oracle.Follow(b.ctx, "")
	b.must(err)
	defer counter.Close()
	ctx, cancel := context.WithTimeout(b.ctx, during)
	defer cancel()
	gap, readings, err := counter.Longest(ctx)
	b.must(err)
	b.Logf("%s: longest gap %v, %d readings in %v", what, gap.Round(time.Millisecond), readings, during)
	if gap > most {
		b.Errorf("%s: nothing was delivered for %v, want at most %v", what, gap, most)
	}
}

// primary returns the path that the gateway's readings go by.
func primary(s admin.Status) string {
	for _, p := range s.Uplink.Paths {
		if p.Primary {
			return p.Name
		}
	}
	return ""
}

func usable(s admin.Status, name string) bool {
	return slices.ContainsFunc(s.Uplink.Paths, func(p admin.Path) bool { return p.Name == name && p.Usable })
}

// needSCTP skips a test on a kernel that has no SCTP.
func needSCTP(t *testing.T) {
	t.Helper()
	if err := sctp.Supported(); err == nil {
		return
	} else if inGuest() {
		t.Fatal(err)
	}
	t.Skip("needs SCTP and netem: runs in the lab's guest")
}
