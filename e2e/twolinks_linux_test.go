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
	tests := []struct {
		name              string
		uplink, collector string
		own               bool // the collector has an address of its own by each path
	}{
		{name: "bare", uplink: `underlay = "bare"`, own: true},
		{name: "tunnel", collector: "[tunnel]\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
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
				Uplink: test.uplink, CollectorTables: test.collector, Flush: 50 * time.Millisecond,
			}
			for _, p := range network.Paths {
				path := lab.SitePath{Interface: p.Access.A.Device}
				if test.own {
					path.Collector = p.Exit.B.Address().String()
				}
				o.Paths = append(o.Paths, path)
			}
			b := newBench(t, o)
			b.start()
			load := b.load(100, 0)
			b.must(b.site.AwaitStatus(b.ctx, "SCTP uses wlan0 and could use wwan0", func(s admin.Status) bool {
				return s.Uplink.Carrier == "sctp" && primary(s) == "wlan0" && usable(s, "wwan0")
			}))
			b.watch("both links well", 2*time.Second, time.Second)
			b.must(network.Paths[0].Cut())
			b.watch("wlan0 silent", 5*time.Second, 2*time.Second)
			b.must(b.site.AwaitStatus(b.ctx, "the status says that wlan0 is gone", func(s admin.Status) bool {
				return primary(s) == "wwan0" && !usable(s, "wlan0")
			}))
			b.must(network.Paths[0].Restore())
			b.must(b.site.AwaitStatus(b.ctx, "wlan0 is usable again", func(s admin.Status) bool { return usable(s, "wlan0") }))
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
