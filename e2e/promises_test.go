package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"sluice/admin"
	"sluice/lab"
)

// Promise 1, field case F5: what was acknowledged over MQTT or HTTP is there
// after the gateway is killed directly afterwards. Nothing is delivered
// meanwhile, so the gateway's disk alone can hold it.
func TestPromise1AcceptedMeansDurable(t *testing.T) {
	b := newBench(t, lab.SiteOptions{})
	b.must(b.site.StartGateway(b.ctx))
	load := b.load(0, 0)
	pushed := 0
	for range kills(t, 25) {
		b.moment(300 * time.Millisecond)
		b.push(pushed)
		b.killGateway()
		pushed++
		b.must(b.site.StartGateway(b.ctx))
	}
	b.must(b.site.StartCollector(b.ctx))
	arrived := make(map[string]int)
	b.checkEach(load, func(r lab.Record) {
		if r.Device == "node" {
			arrived[r.Value]++
		}
		b.tally.Add(r)
	})
	for i := range pushed {
		if got := arrived[fmt.Sprint(i)]; got != 1 {
			b.Errorf("push %d, accepted just before a kill, arrived %d times, want once", i, got)
		}
	}
}

// push sends a batch of one reading over HTTP until it is accepted.
func (b *bench) push(i int) {
	b.Helper()
	for {
		body := fmt.Appendf(nil, `[{"bn":"node/","n":"count","v":%d}]`, i)
		request, err := http.NewRequestWithContext(b.ctx, http.MethodPost, b.site.PushURL()+"/v1/batches", bytes.NewReader(body))
		b.must(err)
		request.Header.Set("Content-Type", "application/senml+json")
		request.Header.Set("Batch-Id", fmt.Sprintf("batch-%d", i))
		request.Header.Set("Node", "node")
		request.Close = true
		response, err := http.DefaultClient.Do(request)
		b.must(err)
		response.Body.Close()
		if response.StatusCode/100 == 2 {
			return
		}
		if response.StatusCode != http.StatusTooManyRequests {
			b.Fatalf("push: %s", response.Status)
		}
		b.while(50 * time.Millisecond)
	}
}

// Promise 2: the gateway keeps everything until the collector has acknowledged
// it, and the collector acknowledges only what survives its own death.
func TestPromise2NothingDeletedBeforeAcknowledged(t *testing.T) {
	b := newBench(t, lab.SiteOptions{Flush: 20 * time.Millisecond})
	b.start()
	load := b.load(4000, 0)
	for range kills(t, 25) {
		b.moment(400 * time.Millisecond)
		b.killCollector()
		b.must(b.site.StartCollector(b.ctx))
	}
	b.check(load)
}

// Promise 3: whatever dies, however often, and whichever links are cut, one
// copy of each reading is at the output.
func TestPromise3DeliveredOnce(t *testing.T) {
	b := newBench(t, lab.SiteOptions{Flush: 20 * time.Millisecond, Cut: true, AckTimeout: time.Second})
	b.start()
	load := b.load(4000, 0)
	for range kills(t, 35) {
		b.moment(400 * time.Millisecond)
		switch b.random.IntN(4) {
		case 0:
			b.killGateway()
			b.must(b.site.StartGateway(b.ctx))
		case 1:
			b.killCollector()
			b.must(b.site.StartCollector(b.ctx))
		case 2:
			b.killGateway()
			b.killCollector()
			b.start()
		case 3:
			b.site.Cut.Silence()
			b.moment(2 * time.Second)
			b.site.Cut.Restore()
		}
	}
	b.check(load)
}

// Promise 4: each source's messages keep their order within a lane, also when
// alarms, live data and the backlog of an outage travel together.
func TestPromise4OrderPerSourceAndLane(t *testing.T) {
	b := newBench(t, lab.SiteOptions{Flush: 20 * time.Millisecond, Extra: `
[[alarm]]
device = "lab-00-*"
name = "linkquality"
above = 115
`})
	b.start()
	load := b.load(8000, 0)
	for range 3 {
		b.moment(500 * time.Millisecond)
		b.killCollector()
		b.moment(500 * time.Millisecond)
		b.must(b.site.StartCollector(b.ctx))
	}
	lanes := make(map[string]int)
	b.checkEach(load, func(r lab.Record) {
		lanes[r.Lane]++
		b.tally.Add(r)
	})
	for _, lane := range []string{"alarm", "live", "backfill"} {
		if lanes[lane] == 0 {
			b.Errorf("no reading came in the lane %s, so its order was not tested: %v", lane, lanes)
		}
	}
}

// Promise 5, field cases F23 to F28: values arrive as they were written, and
// what cannot be read arrives as it came.
func TestPromise5ValuesArriveExactly(t *testing.T) {
	tests := []struct {
		topic, payload string
		want           []string // "device/name kind value"
	}{
		{"zigbee2mqtt/hall/plug", `{"state":"ON","linkquality":15,"power":null,"voltage":236.950}`, []string{
			"hall/plug/state s ON", "hall/plug/linkquality n 15", "hall/plug/power 0 ", "hall/plug/voltage n 236.950"}},
		{"zigbee2mqtt/motion", `{"occupancy":true,"update":{"installed_version":1124102917,"state":"idle"}}`, []string{
			"motion/occupancy b true", "motion/update.installed_version n 1124102917", "motion/update.state s idle"}},
		{"zigbee2mqtt/tag", `{"id":2882429806056571124,"low":-9223372036854775808,"high":18446744073709551615}`, []string{
			"tag/id n 2882429806056571124", "tag/low n -9223372036854775808", "tag/high n 18446744073709551615"}},
		{"zigbee2mqtt/meter", `{"power":-32768,"current":65.535,"energy":0.10,"tiny":1.5e-300}`, []string{
			"meter/power n -32768", "meter/current n 65.535", "meter/energy n 0.10", "meter/tiny n 1.5e-300"}},
		{"zigbee2mqtt/label", `{"text":"\u00e9\n\"x\" ☃","empty":""}`, []string{
			"label/text s é\n\"x\" ☃", "label/empty s "}},
		{"zigbee2mqtt/broken", `{"temperature":21.5`, []string{"d eyJ0ZW1wZXJhdHVyZSI6MjEuNQ"}},
		{"zigbee2mqtt/latin", "{\"name\":\"caf\xe9\"}", []string{"d eyJuYW1lIjoiY2Fm6SJ9"}},
	}
	var feed messages
	for _, test := range tests {
		feed = append(feed, [2]string{test.topic, test.payload})
	}
	b := newBench(t, lab.SiteOptions{})
	b.start()
	load := lab.StartLoad(b.ctx, lab.LoadOptions{Address: b.site.Broker(), Feeds: []lab.Feed{feed}, Window: 10, Messages: uint64(len(feed))})
	b.must(load.Wait(b.ctx))
	got := make(map[string]int)
	b.settle(func(r lab.Record) {
		got[fmt.Sprintf("%s/%s %c %s", r.Device, r.Name, r.Kind, r.Value)]++
		if r.Kind == lab.KindBytes { // under what name is not this test's matter
			got[fmt.Sprintf("%c %s", r.Kind, r.Value)]++
		}
	})
	for _, test := range tests {
		for _, want := range test.want {
			if got[want] != 1 {
				b.Errorf("message %s %s: %q arrived %d times, want once", test.topic, test.payload, want, got[want])
			}
		}
	}
	if b.Failed() {
		b.Logf("arrived: %v", got)
	}
}

// messages is a feed of fixed topics and payloads.
type messages [][2]string

// Compose implements lab.Feed.
func (ms messages) Compose(dst []byte, m uint64) (string, []byte) {
	return ms[m][0], append(dst, ms[m][1]...)
}

// Promise 6, field case F8: with the link down and the quota reached, the policy
// applies and is counted, alarms stay, and everything kept drains when the link
// is back.
func TestPromise6EveryLimitIsStatedAndCounted(t *testing.T) {
	const alarms = `
[[alarm]]
device = "siren"
name = "ringing"
equals = true
`
	ring := messages{{"zigbee2mqtt/siren", `{"ringing":true}`}}
	rang := func(b *bench, r lab.Record, count *int) {
		if r.Device == "siren" {
			*count++
		}
		b.tally.Add(r)
	}
	t.Run("drop-oldest", func(t *testing.T) {
		b := newBench(t, lab.SiteOptions{Quota: "1200KB", Policy: "drop-oldest", Extra: alarms})
		b.must(b.site.StartGateway(b.ctx))
		b.must(lab.StartLoad(b.ctx, lab.LoadOptions{Address: b.site.Broker(), Feeds: []lab.Feed{ring}, Window: 1, Messages: 1}).Wait(b.ctx))
		load := b.publish(120_000)
		status, err := b.site.Status(b.ctx)
		b.must(err)
		if status.Store.UsedBytes > status.Store.QuotaBytes {
			b.Errorf("the store uses %d bytes, more than its quota of %d", status.Store.UsedBytes, status.Store.QuotaBytes)
		}
		b.must(b.site.StartCollector(b.ctx))
		alarmsSeen := 0
		b.settle(func(r lab.Record) { rang(b, r, &alarmsSeen) })
		b.checkRemoved(load)
		if alarmsSeen != 1 {
			b.Errorf("the alarm arrived %d times, want once", alarmsSeen)
		}
	})
	t.Run("reject", func(t *testing.T) {
		b := newBench(t, lab.SiteOptions{Quota: "1200KB", Policy: "reject", Extra: alarms})
		b.must(b.site.StartGateway(b.ctx))
		load := b.load(0, 120_000)
		ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
		defer cancel()
		b.must(b.site.AwaitStatus(ctx, "messages are refused", func(s admin.Status) bool { return s.Ingest.Refused > 0 }))
		b.must(b.site.StartCollector(b.ctx))
		b.must(load.Wait(b.ctx))
		b.check(load)
	})
}

// Promise 7, field case F6: power goes at any instant, also while the gateway
// starts and while the link is down; it starts again by itself, and only what
// was never acknowledged can be missing.
func TestPromise7PowerMayGoAtAnyInstant(t *testing.T) {
	b := newBench(t, lab.SiteOptions{Cut: true, AckTimeout: time.Second})
	b.start()
	load := b.load(4000, 0)
	for range kills(t, 15) {
		b.moment(300 * time.Millisecond)
		b.site.Cut.Silence()
		b.moment(200 * time.Millisecond)
		b.killGateway()
		// The next start is cut short, wherever it is.
		b.must(b.site.LaunchGateway())
		b.moment(150 * time.Millisecond)
		b.killGateway()
		b.site.Cut.Restore()
		b.must(b.site.StartGateway(b.ctx))
	}
	b.check(load)
}
