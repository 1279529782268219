package mqtt

import (
	"bytes"
	"context"
	"errors"
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

	"sluice/ingest"
	"sluice/ingest/push"
	"sluice/reading"
)

// patientFor bounds every wait of these tests; they end long before.
const patientFor = 20 * time.Second

// broker is a mosquitto of the test's own.
type broker struct {
	t    *testing.T
	dir  string
	port int
	cmd  *exec.Cmd
	log  lockedBuffer
}

// lockedBuffer collects what a process writes while a test reads it.
type lockedBuffer struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lockedBuffer) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), text)
}

func newBroker(t *testing.T) *broker {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &broker{t: t, dir: t.TempDir(), port: l.Addr().(*net.TCPAddr).Port}
	l.Close()
	b.configure("")
	b.start()
	t.Cleanup(b.kill)
	return b
}

// configure writes the configuration, which keeps sessions on disk at every
// change so that a killed broker still has them.
func (b *broker) configure(more string) {
	if os.Geteuid() == 0 {
		more += "user root\n" // else it becomes one who cannot write here
	}
	b.write("mosquitto.conf", fmt.Sprintf("listener %d 127.0.0.1\nallow_anonymous true\npersistence true\n"+
		"persistence_location %s/\nautosave_interval 1\nautosave_on_changes true\n%s", b.port, b.dir, more))
}

func (b *broker) write(name, content string) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, name), []byte(content), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func (b *broker) start() {
	b.t.Helper()
	path, err := exec.LookPath("mosquitto")
	if err != nil {
		path = "/usr/sbin/mosquitto" // not in the PATH of ordinary users
	}
	b.cmd = exec.Command(path, "-c", filepath.Join(b.dir, "mosquitto.conf"))
	b.cmd.Stderr = &b.log
	if err := b.cmd.Start(); err != nil {
		b.t.Fatalf("mosquitto: %v: apt-get install mosquitto", err)
	}
	await(b.t, "broker listens", func() bool {
		c, err := net.Dial("tcp", b.address())
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

// kill ends the broker as a power cut would.
func (b *broker) kill() {
	if b.cmd != nil && b.cmd.Process != nil {
		b.cmd.Process.Kill()
		b.cmd.Wait()
		b.cmd = nil
	}
}

func (b *broker) forget() {
	if err := os.Remove(filepath.Join(b.dir, "mosquitto.db")); err != nil && !errors.Is(err, os.ErrNotExist) {
		b.t.Fatal(err)
	}
}

func (b *broker) address() string { return fmt.Sprintf("127.0.0.1:%d", b.port) }

// publish publishes as an ordinary client and waits for the acknowledgements.
func (b *broker) publish(topic string, qos byte, retained bool, payloads ...string) {
	b.t.Helper()
	o := paho.NewClientOptions().AddBroker("tcp://" + b.address()).SetClientID("publisher")
	c := paho.NewClient(o)
	if tok := c.Connect(); !tok.WaitTimeout(patientFor) || tok.Error() != nil {
		b.t.Fatalf("publisher: %v", tok.Error())
	}
	defer c.Disconnect(250)
	for _, p := range payloads {
		if tok := c.Publish(topic, qos, retained, p); !tok.WaitTimeout(patientFor) || tok.Error() != nil {
			b.t.Fatalf("publish: %v", tok.Error())
		}
	}
}

// await polls until what holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(patientFor)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// sink keeps what it is given, as a store would: what is marked as a repetition
// and is remembered is kept once. Until it is opened nothing is durable.
type sink struct {
	mu       sync.Mutex
	held     bool // done is not called
	refuse   error
	block    bool // Append blocks
	batches  []reading.Batch
	receipts map[string][]uint64
	pending  []func(error)
	offered  int
}

var _ ingest.Sink = (*sink)(nil)

func (s *sink) Append(ctx context.Context, b reading.Batch, done func(error)) error {
	s.mu.Lock()
	s.offered++
	block, refuse := s.block, s.refuse
	s.mu.Unlock()
	if block {
		<-ctx.Done()
		return ingest.ErrBusy
	}
	if refuse != nil {
		go done(refuse)
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := b.Receipt
	if !r.Repeat || !slices.Contains(s.receipts[r.Sender], r.ID) {
		s.batches = append(s.batches, b)
	}
	if r.Sender != "" {
		if s.receipts == nil {
			s.receipts = make(map[string][]uint64)
		}
		ids := append(s.receipts[r.Sender], r.ID)
		s.receipts[r.Sender] = ids[max(0, len(ids)-r.Keep):]
	}
	if s.held {
		s.pending = append(s.pending, done)
		return nil
	}
	go done(nil)
	return nil
}

func (s *sink) set(change func(*sink)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// values lists what is kept, in order.
func (s *sink) values() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var vs []string
	for _, b := range s.batches {
		vs = append(vs, b.Readings[0].Value.String())
	}
	return vs
}

func (s *sink) count() int { return len(s.values()) }

// run starts a client; the returned function stops it as a clean stop does.
func run(t *testing.T, b *broker, s *sink, change func(*Options)) (c *Client, stop func()) {
	t.Helper()
	decoder, err := ingest.NewDecoder(ingest.DecoderOptions{MaxPayload: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Name: "test", URL: "tcp://" + b.address(), ClientID: "sluice-test", Topics: []string{"a/#"}, QoS: 2,
		MaxPayload: 64 << 10, Sink: s, Decoder: decoder, Logger: slog.New(slog.DiscardHandler),
		Now: func() reading.Time { return reading.Time{Wall: time.Now().UnixNano()} }}
	if change != nil {
		change(&o)
	}
	c, err = New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-ended:
				if err != nil {
					t.Errorf("Run: %v", err)
				}
			case <-time.After(patientFor):
				t.Error("Run does not end")
			}
		})
	}
	t.Cleanup(stop)
	return c, stop
}

// subscribed waits until the broker has the subscriptions of the client's
// session of that number.
func subscribed(t *testing.T, c *Client, sessions uint64) {
	t.Helper()
	await(t, "client subscribes", func() bool { st := c.Stats(); return st.Connected && st.Sessions >= sessions })
}

func numbers(from, to int) []string {
	var vs []string
	for i := from; i <= to; i++ {
		vs = append(vs, fmt.Sprint(i))
	}
	return vs
}

func TestAllQoS(t *testing.T) {
	b, s := newBroker(t), new(sink)
	c, stop := run(t, b, s, nil)
	subscribed(t, c, 1)
	var want []string
	for qos := range byte(3) {
		vs := numbers(int(qos)*50, int(qos)*50+49)
		b.publish("a/x", qos, false, vs...)
		want = append(want, vs...)
		await(t, "all arrive", func() bool { return s.count() == len(want) })
	}
	if got := s.values(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	await(t, "all are acknowledged", func() bool { st := c.Stats(); return st.Waiting == 0 && st.Acked == 100 })
	stop()
	if st := c.Stats(); st.Connected || st.Messages != 150 || st.Dropped != 0 || st.Refused != 0 || st.LastError != "" {
		t.Errorf("stats: %+v", st)
	}
}

// F2: what is published while the client is down arrives when it is back.
func TestPersistentSession(t *testing.T) {
	b, s := newBroker(t), new(sink)
	c, stop := run(t, b, s, nil)
	subscribed(t, c, 1)
	b.publish("a/x", 1, false, "0")
	await(t, "the first arrives", func() bool { return s.count() == 1 })
	stop()
	b.publish("a/x", 1, false, numbers(1, 12)...)
	run(t, b, s, nil)
	await(t, "the rest arrives", func() bool { return s.count() == 13 })
	if got, want := s.values(), numbers(0, 12); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A topic that is taken out of the configuration is not read any more, although
// the broker has kept the session, and the others are.
func TestTopicTakenOut(t *testing.T) {
	b, s := newBroker(t), new(sink)
	file := filepath.Join(t.TempDir(), "topics")
	topics := func(ts ...string) func(*Options) {
		return func(o *Options) { o.Topics, o.TopicsFile = ts, file }
	}
	c, stop := run(t, b, s, topics("a/#", "b/#"))
	subscribed(t, c, 1)
	stop()
	c, stop = run(t, b, s, topics("b/#", "c/#"))
	subscribed(t, c, 1)
	b.publish("a/x", 1, false, "unwanted")
	b.publish("c/x", 1, false, "1")
	b.publish("b/x", 1, false, "2")
	await(t, "both arrive", func() bool { return s.count() >= 2 })
	if got, want := s.values(), numbers(1, 2); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	stop()
	if got, err := topicsFile(file).read(); err != nil || !slices.Equal(got, []string{"b/#", "c/#"}) {
		t.Errorf("remembered: got %q, %v", got, err)
	}
}

// Promise 1: without the commit there is no acknowledgement, and the broker
// sends again; what was committed but not acknowledged is not kept twice.
func TestAcknowledgedOnlyWhenDurable(t *testing.T) {
	for _, qos := range []byte{1, 2} {
		b, s := newBroker(t), &sink{held: true}
		c, stop := run(t, b, s, nil)
		subscribed(t, c, 1)
		b.publish("a/x", qos, false, numbers(1, 5)...)
		await(t, "all reach the sink", func() bool { return s.count() == 5 })
		if st := c.Stats(); st.Acked != 0 || st.Waiting != 5 {
			t.Errorf("QoS %d, before the commit: %+v", qos, st)
		}
		stop()

		// The sink has all five, but this was never said: nothing new is kept.
		s.set(func(s *sink) { s.held = false })
		c, stop = run(t, b, s, nil)
		await(t, "the broker sends again", func() bool { return c.Stats().Acked == 5 })
		if st := c.Stats(); st.Repeated != 5 {
			t.Errorf("QoS %d: %d repeated, want 5", qos, st.Repeated)
		}
		stop()
		await(t, "the broker reads to the end", func() bool { return b.log.count("Client sluice-test disconnected") == 2 })
		if got, want := s.values(), numbers(1, 5); !slices.Equal(got, want) {
			t.Errorf("QoS %d: got %v, want %v", qos, got, want)
		}

		// Acknowledged: not sent a third time.
		c, stop = run(t, b, s, nil)
		subscribed(t, c, 1)
		b.publish("a/x", qos, false, "6")
		await(t, "only the next arrives", func() bool { return s.count() == 6 })
		if st := c.Stats(); st.Messages != 1 {
			t.Errorf("QoS %d: %d messages after the acknowledgement, want 1", qos, st.Messages)
		}
		stop()
		b.kill()
	}
}

// F30: the broker dies and returns, with its sessions or with none;
// subscriptions are there again.
func TestBrokerRestarts(t *testing.T) {
	for _, forgets := range []bool{false, true} {
		b, s := newBroker(t), new(sink)
		c, stop := run(t, b, s, nil)
		subscribed(t, c, 1)
		b.publish("a/x", 1, false, "1")
		await(t, "the first arrives", func() bool { return s.count() == 1 })
		b.kill()
		await(t, "the client notices", func() bool { return !c.Stats().Connected })
		if c.Stats().LastError == "" {
			t.Error("no reason in the status")
		}
		if forgets {
			b.forget()
		}
		b.start()
		subscribed(t, c, 2)
		// The subscription follows the connection; a message proves it.
		await(t, "messages arrive again", func() bool {
			b.publish("a/x", 1, false, "2")
			return s.count() > 1
		})
		stop()
		b.kill()
	}
}

// A full sink: nothing is acknowledged, the broker keeps it, and after a pause
// everything arrives, in order.
func TestFullSink(t *testing.T) {
	b, s := newBroker(t), &sink{refuse: ingest.ErrFull}
	c, _ := run(t, b, s, nil)
	subscribed(t, c, 1)
	b.publish("a/x", 1, false, numbers(1, 10)...)
	await(t, "the session ends", func() bool { st := c.Stats(); return st.Refused > 0 && !st.Connected })
	if st := c.Stats(); st.Acked != 0 || !strings.Contains(st.LastError, ingest.ErrFull.Error()) {
		t.Errorf("while full: %+v", st)
	}
	s.set(func(s *sink) { s.refuse = nil })
	await(t, "all arrive", func() bool { return s.count() == 10 })
	if got, want := s.values(), numbers(1, 10); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// promises is a sink that keeps what it has been given, and what is to be called.
type promises chan promise

type promise struct {
	ctx  context.Context
	done func(error)
}

func (p promises) Append(ctx context.Context, _ reading.Batch, done func(error)) error {
	p <- promise{ctx, done}
	return nil
}

// What was appended behind a message that the sink has refused is to be refused as
// well, since the broker sends both again (promise 4): the sink learns it from
// the context. QoS 0 is not sent again, and goes on.
func TestRefusalEndsTheOrder(t *testing.T) {
	decoder, err := ingest.NewDecoder(ingest.DecoderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	sink := make(promises, 3)
	c, err := New(Options{Name: "test", URL: "tcp://localhost", ClientID: "test", Topics: []string{"#"},
		Sink: sink, Decoder: decoder, Logger: slog.New(slog.DiscardHandler),
		Now: func() reading.Time { return reading.Time{Wall: 1} }})
	if err != nil {
		t.Fatal(err)
	}
	s := c.newSession(t.Context())
	defer s.finish(false)
	for _, qos := range []byte{1, 0, 1} {
		s.receive(message{qos: qos})
	}
	first, forgotten, second := <-sink, <-sink, <-sink
	first.done(ingest.ErrFull)
	if got := context.Cause(second.ctx); got != ingest.ErrFull {
		t.Errorf("QoS 1: the context ended with %v, want %v", got, ingest.ErrFull)
	}
	if got := forgotten.ctx.Err(); got != nil {
		t.Errorf("QoS 0: the context ended with %v, want it to go on", got)
	}
}

// A sink that takes nothing does not keep the client from ending, nor from
// answering the broker's pings.
func TestBlockedSink(t *testing.T) {
	b, s := newBroker(t), &sink{block: true}
	c, stop := run(t, b, s, nil)
	subscribed(t, c, 1)
	b.publish("a/x", 1, false, numbers(1, 30)...)
	await(t, "the sink is asked", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.offered > 0 })
	stop()
	if st := c.Stats(); st.Acked != 0 {
		t.Errorf("acknowledged %d, want none", st.Acked)
	}
	s.set(func(s *sink) { s.block = false })
	run(t, b, s, nil)
	await(t, "all arrive", func() bool { return s.count() == 30 })
}

// F29: a retained message comes with every subscription and is kept once, and
// marked; a new payload is kept.
func TestRetainedIsKeptOnce(t *testing.T) {
	b, s := newBroker(t), new(sink)
	b.publish("a/x", 1, true, "1")
	for i, want := range []int{1, 1, 2} {
		if i == 2 {
			b.publish("a/x", 1, true, "2")
		}
		c, stop := run(t, b, s, func(o *Options) { o.ClientID = fmt.Sprint("sluice-", i) })
		await(t, "the retained message arrives", func() bool { return c.Stats().Retained == 1 && c.Stats().Waiting == 0 })
		stop()
		if s.count() != want {
			t.Errorf("subscription %d: %d kept, want %d", i+1, s.count(), want)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, batch := range s.batches {
		if batch.Readings[0].Flags != reading.FlagRetained {
			t.Errorf("flags %d, want retained", batch.Readings[0].Flags)
		}
	}
}

// F28: 10 MB reach the decoder as little more than its limit.
func TestGiantPayload(t *testing.T) {
	b, s := newBroker(t), new(sink)
	c, _ := run(t, b, s, nil)
	subscribed(t, c, 1)
	b.publish("a/x", 1, false, strings.Repeat("x", 10<<20), "1")
	await(t, "both arrive", func() bool { return s.count() == 2 })
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.batches[0].Readings[0]
	if r.Flags != reading.FlagRaw || r.Name != "size" || len(r.Value.Raw()) != ingest.MaxRaw {
		t.Errorf("got %d bytes named %q, flags %d", len(r.Value.Raw()), r.Name, r.Flags)
	}
	if got := s.batches[1].Readings[0].Value.String(); got != "1" {
		t.Errorf("behind it: got %q, want 1", got)
	}
}

// A batch that cannot be used is kept raw: it must not come back for ever.
func TestUnusableBatch(t *testing.T) {
	b, s := newBroker(t), new(sink)
	c, _ := run(t, b, s, func(o *Options) { o.Topics = []string{"sink/+/batch"} })
	subscribed(t, c, 1)
	b.publish("sink/n1/batch", 1, false, "nonsense")
	await(t, "it is acknowledged", func() bool { return c.Stats().Acked == 1 })
	if st := c.Stats(); st.Unusable != 1 || !slices.Equal(s.values(), []string{reading.Bytes([]byte("nonsense")).String()}) {
		t.Errorf("stats %+v, kept %v", st, s.values())
	}
}

// A sink node's batch is recognised by what it says: a new message with the same
// batch is stored once.
func TestBatchKeepsItsReceipt(t *testing.T) {
	b, s := newBroker(t), new(sink)
	decoder, err := ingest.NewDecoder(ingest.DecoderOptions{
		Batches: func(node string, payload []byte, at reading.Time) (reading.Batch, error) {
			return push.Decode("", node, payload, at, 1000)
		}})
	if err != nil {
		t.Fatal(err)
	}
	c, _ := run(t, b, s, func(o *Options) { o.Topics, o.Decoder = []string{"sink/+/batch"}, decoder })
	subscribed(t, c, 1)
	dated := `[{"n":"a","v":1,"t":1422886740}]`
	b.publish("sink/n1/batch", 1, false, dated, dated, `[{"n":"a","v":2}]`)
	await(t, "they are acknowledged", func() bool { return c.Stats().Acked == 3 })
	if got, want := s.values(), []string{"1", "2"}; !slices.Equal(got, want) {
		t.Errorf("kept %v, want %v", got, want)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if got, want := s.batches[0].Receipt.Sender, "push:n1"; got != want {
		t.Errorf("sender: got %q, want %q", got, want)
	}
	if got, want := s.batches[1].Receipt.Sender, "mqtt:test"; got != want {
		t.Errorf("sender of a batch of now: got %q, want %q", got, want)
	}
}

func TestCredentialsAndRights(t *testing.T) {
	b := newBroker(t)
	b.kill()
	b.write("passwd", "sluice:secret\n")
	if out, err := exec.Command("mosquitto_passwd", "-U", filepath.Join(b.dir, "passwd")).CombinedOutput(); err != nil {
		t.Fatalf("mosquitto_passwd: %v: %s: apt-get install mosquitto", err, out)
	}
	b.write("acl", "user sluice\ntopic readwrite a/#\n")
	b.configure(fmt.Sprintf("allow_anonymous false\npassword_file %s/passwd\nacl_file %s/acl\n", b.dir, b.dir))
	b.start()

	c, _ := run(t, b, new(sink), func(o *Options) { o.Username, o.Password = "sluice", "wrong" })
	await(t, "the refusal shows", func() bool { return strings.Contains(c.Stats().LastError, "not Authorized") })

	c, stop := run(t, b, new(sink), func(o *Options) { o.Username, o.Password, o.ClientID = "sluice", "secret", "right" })
	subscribed(t, c, 1)
	stop()
}

func TestWrongOptions(t *testing.T) {
	_, err := New(Options{Name: "house", URL: "http://", QoS: 3, Logger: slog.New(slog.DiscardHandler)})
	if err == nil {
		t.Fatal("got no error")
	}
	for _, want := range []string{`mqtt source "house"`, `scheme "http"`, "no host", "client id", "topics", "qos 3"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q: %v", want, err)
		}
	}
}

func TestBackoff(t *testing.T) {
	var b backoff
	var got []time.Duration
	for range 8 {
		got = append(got, b.next(0, 1))
	}
	want := []time.Duration{1, 2, 4, 8, 16, 32, 60, 60}
	for i := range want {
		want[i] *= time.Second
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := b.next(0, 0); got != 30*time.Second {
		t.Errorf("by chance: got %v, want 30s", got)
	}
	if got := b.next(steady, 0); got != time.Second/2 {
		t.Errorf("after a steady session: got %v, want 500ms", got)
	}
}

// A session's identity of a message must be the same in the next process.
func TestHashIsStable(t *testing.T) {
	if got, want := hash(0x1234, "a/b", []byte("1")), uint64(0x734a7a7fc9c18330); got != want {
		t.Errorf("got %x, want %x", got, want)
	}
	if hash(1, "a", []byte("b")) == hash(1, "ab", nil) || hash(1, "a", nil) == hash(2, "a", nil) {
		t.Error("different messages, one hash")
	}
}
