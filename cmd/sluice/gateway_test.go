package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	paho "github.com/eclipse/paho.mqtt.golang"

	"sluice/admin"
)

// patience bounds every wait of these tests.
const patience = 30 * time.Second

// process is the program, run inside the test.
type process struct {
	t      *testing.T
	config string // its configuration file
	dir    string
	broker string
	lines  chan string // of its log
	stop   context.CancelFunc
	ended  chan int
}

// start runs a gateway whose configuration ends with text.
func start(t *testing.T, dir, broker, text string) *process {
	t.Helper()
	p := &process{t: t, dir: dir, config: filepath.Join(dir, "sluice.toml"), broker: broker, lines: make(chan string, 1000), ended: make(chan int, 1)}
	p.write(text)
	ctx, cancel := context.WithCancel(t.Context())
	p.stop = cancel
	r, w := io.Pipe()
	go func() {
		for s := bufio.NewScanner(r); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	go func() {
		code := run(ctx, []string{"run", "--config", p.config}, io.Discard, w)
		w.Close()
		p.ended <- code
	}()
	p.await("gateway runs")
	t.Cleanup(func() { p.end(0) })
	return p
}

// write replaces the configuration.
func (p *process) write(text string) {
	p.t.Helper()
	head := fmt.Sprintf("version = 1\nlog.level = \"info\"\n[gateway]\nid = \"gw-1\"\ndata_dir = \"data\"\n[broker]\nlisten = [%q]\n", p.broker)
	if err := os.WriteFile(p.config, []byte(head+text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// await waits for a line of the log that contains text, and returns it.
func (p *process) await(text string) string {
	p.t.Helper()
	deadline := time.After(patience)
	var seen []string
	for {
		select {
		case line := <-p.lines:
			if strings.Contains(line, text) {
				return line
			}
			seen = append(seen, line)
		case code := <-p.ended:
			p.ended <- code
			p.t.Fatalf("program ended with %d before it wrote %q:\n%s", code, text, strings.Join(seen, "\n"))
		case <-deadline:
			p.t.Fatalf("no line with %q in\n%s", text, strings.Join(seen, "\n"))
		}
	}
}

// reload gives the program another configuration and waits for what it says.
func (p *process) reload(text, answer string) string {
	p.t.Helper()
	p.write(text)
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		p.t.Fatal(err)
	}
	return p.await(answer)
}

// end stops the program, once.
func (p *process) end(want int) {
	p.t.Helper()
	p.stop()
	select {
	case got := <-p.ended:
		p.ended <- got
		if got != want {
			p.t.Errorf("exit status: got %d, want %d", got, want)
		}
	case <-time.After(patience):
		p.t.Error("the program does not end")
	}
}

func (p *process) status() admin.Status {
	p.t.Helper()
	s, _, err := admin.Fetch(p.t.Context(), filepath.Join(p.dir, "data", "sluice.sock"))
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

// connect is a client that must not lose its connection.
func (p *process) connect() paho.Client {
	p.t.Helper()
	c := paho.NewClient(paho.NewClientOptions().AddBroker("tcp://" + p.broker).SetClientID("sensor").SetAutoReconnect(false).
		SetConnectionLostHandler(func(_ paho.Client, err error) { p.t.Errorf("connection lost: %v", err) }))
	if token := c.Connect(); !token.WaitTimeout(patience) || token.Error() != nil {
		p.t.Fatalf("connect: %v", token.Error())
	}
	return c
}

// publish returns when the message is acknowledged.
func publish(t *testing.T, c paho.Client, topic, payload string) {
	t.Helper()
	if token := c.Publish(topic, 1, false, payload); !token.WaitTimeout(patience) || token.Error() != nil {
		t.Fatalf("publish to %s: %v", topic, token.Error())
	}
}

// freeAddress is an address of this machine where nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestRun is a gateway's day: readings come in, the configuration is changed
// well and badly, and the gateway is stopped and started again. One client stays
// connected through all reloads.
func TestRun(t *testing.T) {
	dir, brokerAddress := t.TempDir(), freeAddress(t)
	p := start(t, dir, brokerAddress, "")
	sensor := p.connect()
	publish(t, sensor, "zigbee2mqtt/kitchen", `{"temperature":21.50,"battery":97}`)
	s := p.status()
	if s.Gateway != "gw-1" || s.Store.Appended != 2 || s.Ingest.Messages != 1 || s.Ingest.Readings != 2 || !s.Health.OK {
		t.Errorf("status: got %+v, want 2 readings of 1 message", s)
	}
	if waiting, _ := s.Store.Backlog(); waiting != 2 {
		t.Errorf("backlog: got %d, want 2", waiting)
	}
	// Without a collector, nothing is live.
	if got := s.Store.Lanes[2]; got.Name != "backfill" || got.Readings != 2 {
		t.Errorf("lane: got %+v, want 2 readings in backfill", got)
	}

	// Field case F4: the same configuration again.
	p.reload("", "configuration is the same")

	// A wrong one is refused whole, and shown.
	p.reload("[alarm]\n[store]\nqouta = 3\n", "configuration not taken: store.qouta: unknown key")
	if s := p.status(); !strings.Contains(s.Configuration.Refused, `did you mean "quota"?`) {
		t.Errorf("refused: got %q, want both faults", s.Configuration.Refused)
	}
	if len(p.status().Health.Warnings) < 2 {
		t.Errorf("warnings: got %q, want one of the configuration", p.status().Health.Warnings)
	}

	// So is a rule that only the decoder understands.
	p.reload("[[rule]]\ntopic = \"a/b\"\nname = \"{3}\"\n", "configuration not taken: rule[1].name: ")
	if s := p.status(); !strings.Contains(s.Configuration.Refused, "sluice.toml:10: rule[1].name: ") {
		t.Errorf("refused: got %q, want the line", s.Configuration.Refused)
	}

	// What needs a restart is refused with the remedy.
	p.reload("[store]\nquota = \"1GB\"\n", "configuration not taken: store: cannot be changed while the gateway runs; restart the gateway")

	// Rules and alarms hold from the next message on, without a reconnect.
	alarm := "[[alarm]]\nname = \"smoke\"\nequals = true\n"
	p.reload(alarm, "configuration applied")
	publish(t, sensor, "zigbee2mqtt/hall", `{"smoke":true}`)
	s = p.status()
	if got := s.Store.Lanes[0]; got.Readings != 1 {
		t.Errorf("alarm lane: got %+v, want 1 reading", got)
	}
	if s.Ingest.Messages != 2 || s.Ingest.Readings != 3 {
		t.Errorf("ingest: got %+v, want what came before the reload as well", s.Ingest)
	}
	if s.Configuration.Refused != "" {
		t.Errorf("refused: got %q after a good configuration", s.Configuration.Refused)
	}

	// A listener that cannot be opened: all of the old one holds.
	p.reload(fmt.Sprintf("[[alarm]]\nname = \"none\"\n[metrics]\nlisten = %q\n", busyAddress(t)), "configuration not taken: status: metrics on")
	publish(t, sensor, "zigbee2mqtt/hall", `{"smoke":true}`)
	if got := p.status().Store.Lanes[0]; got.Readings != 2 {
		t.Errorf("alarm lane: got %+v, want 2 readings: the old alarm holds", got)
	}

	// Metrics and push are switched on, users are changed; the client stays.
	metrics, pushing := freeAddress(t), freeAddress(t)
	more := fmt.Sprintf("[[broker.user]]\nname = \"a\"\npassword = \"b\"\n[metrics]\nlisten = %q\n[push]\nlisten = %q\n", metrics, pushing)
	p.reload(alarm+more, "configuration applied")
	r, err := http.Get("http://" + metrics + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(r.Body)
	r.Body.Close()
	if !bytes.Contains(body, []byte("sluice_store_appended_total 4\n")) {
		t.Errorf("metrics: no sluice_store_appended_total 4 in\n%s", body)
	}
	pack := filepath.Join(dir, "pack.json")
	if err := os.WriteFile(pack, []byte(`[{"bn":"barn/","n":"temperature","v":4.5}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the same file again is stored once
		var out, errs bytes.Buffer
		if code := run(t.Context(), []string{"push", pack, "--to", "http://" + pushing, "--node", "barn"}, &out, &errs); code != 0 {
			t.Errorf("push: got %d, %s%s", code, &out, &errs)
		}
	}
	s = p.status()
	if s.Store.Appended != 5 || s.Store.Duplicates != 1 || len(s.Ingest.Sources) != 2 || s.Ingest.Sources[1].Messages != 2 {
		t.Errorf("after the push: got %+v %+v, want 5 readings and 1 duplicate", s.Store, s.Ingest)
	}
	// What is pushed obeys the rules for alarms and is in the same totals.
	before := s
	if err := os.WriteFile(pack, []byte(`[{"bn":"barn/","n":"smoke","vb":true},{"n":"dust","v":1}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"push", pack, "--to", "http://" + pushing, "--node", "barn"}, &out, &errs); code != 0 {
		t.Errorf("push: got %d, %s%s", code, &out, &errs)
	}
	s = p.status()
	if got, want := s.Store.Lanes[0].Readings, before.Store.Lanes[0].Readings+2; got != want {
		t.Errorf("alarm lane after a push: got %d, want %d", got, want)
	}
	if s.Ingest.Messages != before.Ingest.Messages+1 || s.Ingest.Readings != before.Ingest.Readings+2 {
		t.Errorf("ingest: got %+v after %+v, want a message and 2 readings more", s.Ingest, before.Ingest)
	}
	publish(t, sensor, "zigbee2mqtt/kitchen", `{"temperature":21.75}`)
	if !sensor.IsConnected() {
		t.Error("the client was disconnected")
	}
	sensor.Disconnect(0)
	p.end(0)
	if _, err := os.Stat(filepath.Join(dir, "data", "sluice.sock")); err == nil {
		t.Error("the socket is left behind")
	}

	// What is on disk is there after a restart, and can be inspected between.
	file := filepath.Join(dir, "data", "store.db")
	for _, test := range []struct{ what, want string }{
		{"check", "the store is whole\n"}, {"stat", "alarm     4 readings"}, {"export", `"temperature"`},
	} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), []string{"store", test.what, file}, &out, &errs); code != 0 || !strings.Contains(out.String(), test.want) {
			t.Errorf("store %s: got %d %s%s, want %q", test.what, code, &out, &errs, test.want)
		}
	}
	p = start(t, dir, brokerAddress, alarm)
	s = p.status()
	if waiting, _ := s.Store.Backlog(); waiting != 8 {
		t.Errorf("backlog after a restart: got %d, want 8", waiting)
	}
}

// busyAddress is an address where something listens already.
func busyAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}
