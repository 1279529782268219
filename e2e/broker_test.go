package e2e

import (
	"fmt"
	"testing"
	"time"

	"sluice/admin"
	"sluice/lab"
)

// foreign is a mosquitto that the gateway subscribes to.
type foreign struct {
	*bench
	o       lab.MosquittoOptions
	process *lab.Process
}

// newForeign starts a broker and a gateway that is its client.
func newForeign(t *testing.T, persistent bool) *foreign {
	t.Helper()
	address := lab.FreeAddress("127.0.0.1")
	b := newBench(t, lab.SiteOptions{Extra: fmt.Sprintf(`
[[mqtt]]
name = "house"
url = "tcp://%s"
topics = ["zigbee2mqtt/#"]
`, address)})
	f := &foreign{bench: b, o: lab.MosquittoOptions{Dir: t.TempDir(), Name: "house", Address: address, Persistent: persistent}}
	f.startBroker()
	t.Cleanup(func() { f.process.Kill() })
	b.start()
	f.awaitSubscribed()
	return f
}

func (f *foreign) startBroker() {
	f.Helper()
	var err error
	f.process, err = lab.StartMosquitto(f.ctx, f.o)
	f.must(err)
}

// awaitSubscribed waits until the gateway says that it listens to the broker.
func (f *foreign) awaitSubscribed() {
	f.Helper()
	f.must(f.site.AwaitStatus(f.ctx, "the gateway is connected to the broker", func(s admin.Status) bool {
		for _, source := range s.Ingest.Sources {
			if source.Name == "mqtt house" && source.Up {
				return true
			}
		}
		return false
	}))
}

// publishFrom sends messages of a feed through the broker, from first on.
func (f *foreign) publishFrom(feed lab.Feed, first, messages uint64) {
	f.Helper()
	load := lab.StartLoad(f.ctx, lab.LoadOptions{
		Address: f.o.Address, Feeds: []lab.Feed{lab.From(feed, first)}, Window: 100, Messages: messages,
	})
	f.must(load.Wait(f.ctx))
}

// arrive waits until all messages below count of the first feed are at the
// output, and checks that each is there once.
func (f *foreign) arrive(count uint64) {
	f.Helper()
	f.must(f.oracle.Await(f.ctx, f.tally.Add, func() bool { return f.tally.Seen() >= count }))
	f.settle(f.tally.Add)
	if faults, first := f.tally.Faults(); faults > 0 || f.tally.Seen() != count {
		f.Errorf("%d messages arrived, want %d; %d faults: %s", f.tally.Seen(), count, faults, first)
	}
}

// F30: a broker elsewhere comes back without a memory of its clients; the
// gateway subscribes again and takes in what follows.
func TestField30BrokerForgets(t *testing.T) {
	f := newForeign(t, false)
	f.publishFrom(f.feeds[0], 0, 1000)
	f.arrive(1000)
	f.process.Kill()
	f.startBroker()
	f.publishUntilSeen()
	f.publishFrom(f.feeds[0], 1000, 1000)
	f.arrive(2000)
}

// publishUntilSeen publishes a sign of life through the broker until it is at
// the output: from then on the subscription is restored.
func (f *foreign) publishUntilSeen() {
	f.Helper()
	sign := messages{{"zigbee2mqtt/sign", `{"alive":true}`}}
	seen := false
	for !seen {
		load := lab.StartLoad(f.ctx, lab.LoadOptions{Address: f.o.Address, Feeds: []lab.Feed{sign}, Window: 1, Messages: 1})
		f.must(load.Wait(f.ctx))
		f.while(200 * time.Millisecond)
		f.must(f.oracle.Advance(f.ctx, func(r lab.Record) {
			seen = seen || r.Device == "sign"
			f.tally.Add(r)
		}))
	}
}

// A broker elsewhere that keeps its sessions is restarted with messages under
// way, and the gateway is killed and away for a while: each message arrives
// once.
func TestBrokerAndGatewayRestart(t *testing.T) {
	f := newForeign(t, true)
	const part = 2000
	for i := range uint64(3) {
		f.publishFrom(f.feeds[0], i*part, part)
		switch i {
		case 0: // the broker stops in order, so that it keeps what it holds
			f.must(f.process.Stop(f.ctx))
			f.startBroker()
		case 1:
			f.killGateway()
			f.publishFrom(f.feeds[1], 0, part)
			f.must(f.site.StartGateway(f.ctx))
		}
	}
	f.arrive(4 * part)
}
