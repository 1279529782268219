package mqtt

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	paho "github.com/eclipse/paho.mqtt.golang"

	"sluice/collector"
	"sluice/collector/outputtest"
	"sluice/collector/pack"
	"sluice/reading"
)

var live = collector.Stream{Gateway: "gw-1", Epoch: 7, Lane: reading.Live}

// broker is a mosquitto on loopback that can be stopped and started again.
type broker struct {
	t       *testing.T
	config  string
	address string
	process *exec.Cmd
}

func startBroker(t *testing.T) *broker {
	t.Helper()
	if _, err := exec.LookPath("mosquitto"); err != nil {
		t.Fatal("mosquitto is not installed: apt-get install mosquitto")
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().(*net.TCPAddr)
	free.Close()
	dir := t.TempDir()
	b := &broker{t: t, address: address.String(), config: filepath.Join(dir, "mosquitto.conf")}
	text := fmt.Sprintf("listener %d 127.0.0.1\nallow_anonymous true\nuser root\n"+
		"persistence true\npersistence_location %s/\nlog_dest none\n", address.Port, dir)
	if err := os.WriteFile(b.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	b.start()
	t.Cleanup(b.stop)
	return b
}

func (b *broker) start() {
	b.t.Helper()
	b.process = exec.Command("mosquitto", "-c", b.config)
	if err := b.process.Start(); err != nil {
		b.t.Fatal(err)
	}
	deadline := time.After(10 * time.Second)
	for {
		c, err := net.Dial("tcp", b.address)
		if err == nil {
			c.Close()
			return
		}
		select {
		case <-deadline:
			b.t.Fatalf("mosquitto on %s does not come up: %v", b.address, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// stop ends the broker, which saves what it retains.
func (b *broker) stop() {
	b.process.Process.Signal(os.Interrupt)
	b.process.Wait()
}

func (b *broker) open(t *testing.T, id string) *Output {
	t.Helper()
	o, err := Open(outputtest.Context(t), Options{
		URL: "tcp://" + b.address, Prefix: "plant/sluice", ClientID: id,
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close() })
	return o
}

// consumer is an ordinary client that keeps everything it gets.
type consumer struct {
	mu     sync.Mutex
	got    map[string][]paho.Message // by topic
	marked chan struct{}
	client paho.Client
}

func (b *broker) consume(t *testing.T) *consumer {
	t.Helper()
	c := &consumer{got: make(map[string][]paho.Message), marked: make(chan struct{}, 1)}
	c.client = paho.NewClient(paho.NewClientOptions().AddBroker("tcp://" + b.address).SetClientID("consumer"))
	if token := c.client.Connect(); token.Wait() && token.Error() != nil {
		t.Fatal(token.Error())
	}
	if token := c.client.Subscribe("#", 1, c.received); token.Wait() && token.Error() != nil {
		t.Fatal(token.Error())
	}
	t.Cleanup(func() { c.client.Disconnect(0) })
	return c
}

func (c *consumer) received(_ paho.Client, m paho.Message) {
	if m.Topic() == "mark" {
		c.marked <- struct{}{}
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got[m.Topic()] = append(c.got[m.Topic()], m)
}

// deliveries returns what has come of one stream.
func (c *consumer) deliveries(t *testing.T, s collector.Stream) []collector.Delivery {
	t.Helper()
	// All that was acknowledged before this has come when it has come.
	if token := c.client.Publish("mark", 1, false, "x"); token.Wait() && token.Error() != nil {
		t.Fatal(token.Error())
	}
	select {
	case <-c.marked:
	case <-outputtest.Context(t).Done():
		t.Fatal("the consumer's own message does not come")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	topic := fmt.Sprintf("plant/sluice/%s/%s", pack.Escape(s.Gateway), s.Lane)
	var ds []collector.Delivery
	for _, m := range c.got[topic] {
		var records []struct {
			First uint64 `json:"sluice_first"`
			Last  uint64 `json:"sluice_last"`
			Epoch string `json:"sluice_epoch"`
		}
		if err := json.Unmarshal(m.Payload(), &records); err != nil {
			t.Fatalf("%s: %v", topic, err)
		}
		if r := records[0]; r.Epoch == fmt.Sprintf("%016x", s.Epoch) {
			ds = append(ds, outputtest.Delivery(t, pack.Pack{First: r.First, Last: r.Last, Body: m.Payload()}))
		}
	}
	var body []byte
	for _, m := range c.got[topic+"/aside"] {
		var a struct {
			First       uint64 `json:"sluice_first"`
			Last        uint64 `json:"sluice_last"`
			Part, Parts int
			Reason      *string
			Data        string
		}
		if err := json.Unmarshal(m.Payload(), &a); err != nil {
			t.Fatalf("%s: %v", topic, err)
		}
		data, err := base64.RawURLEncoding.DecodeString(a.Data)
		if err != nil {
			t.Fatal(err)
		}
		if body = append(body, data...); a.Part == a.Parts {
			p := pack.Pack{First: a.First, Last: a.Last, Body: body, Unreadable: a.Reason != nil}
			if a.Reason != nil {
				p.Reason = *a.Reason
			}
			ds = append(ds, outputtest.Delivery(t, p))
			body = nil
		}
	}
	slices.SortStableFunc(ds, func(a, b collector.Delivery) int { return int(a.First) - int(b.First) })
	return ds
}

func TestConformance(t *testing.T) {
	outputtest.Run(t, func(t *testing.T) outputtest.Place {
		b := startBroker(t)
		c := b.consume(t)
		return outputtest.Place{
			Open: func(t *testing.T) collector.Output { return b.open(t, "collector") },
			Read: c.deliveries,
		}
	})
}

// F2: the broker is restarted; the output finds its way back and its place.
func TestBrokerRestarts(t *testing.T) {
	b := startBroker(t)
	o := b.open(t, "collector")
	ctx := outputtest.Context(t)
	if err := o.Write(ctx, live, 0, []collector.Delivery{outputtest.Readings(1, 3)}); err != nil {
		t.Fatal(err)
	}
	b.stop()
	b.start()
	last := uint64(0)
	for last != 3 {
		var err error
		if last, err = o.Last(ctx, live); err != nil && ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	if err := o.Write(ctx, live, 3, []collector.Delivery{outputtest.Readings(4, 1)}); err != nil {
		t.Fatal(err)
	}
}

// Another collector that takes a stream over is seen.
func TestTwoCollectors(t *testing.T) {
	b := startBroker(t)
	one, two := b.open(t, "one"), b.open(t, "two")
	ctx := outputtest.Context(t)
	if err := one.Write(ctx, live, 0, []collector.Delivery{outputtest.Readings(1, 3)}); err != nil {
		t.Fatal(err)
	}
	if err := two.Write(ctx, live, 3, []collector.Delivery{outputtest.Readings(4, 1)}); err != nil {
		t.Fatal(err)
	}
	// What the broker has acknowledged to two is on its way to one; a message
	// of one's own comes behind it.
	if err := one.current.roundTrip(ctx); err != nil {
		t.Fatal(err)
	}
	if err := one.Write(ctx, live, 3, []collector.Delivery{outputtest.Readings(4, 1)}); err != collector.ErrConflict {
		t.Fatalf("write behind another's back: got %v, want %v", err, collector.ErrConflict)
	}
}

func TestOpenReportsAnUnreachableBroker(t *testing.T) {
	_, err := Open(outputtest.Context(t), Options{URL: "tcp://127.0.0.1:1", Prefix: "sluice", ClientID: "c",
		Logger: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "tcp://127.0.0.1:1") {
		t.Fatalf("got %v, want an error that names the broker", err)
	}
}
