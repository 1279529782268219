package broker

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"sluice/ingest"
	"sluice/reading"
)

// start serves a broker on a free port until the test ends.
func start(t testing.TB, o Options) *Broker {
	t.Helper()
	if o.Listeners == nil {
		o.Listeners = []Listener{{Address: "127.0.0.1:0"}}
	}
	if o.Users == nil && o.Anonymous.Publish == nil {
		o.Anonymous = Rights{Publish: []string{"#"}, Subscribe: []string{"#"}}
	}
	if o.Decoder == nil {
		o.Decoder = textDecoder{}
	}
	if o.Now == nil {
		o.Now = func() reading.Time { return reading.Time{Wall: time.Now().UnixNano()} }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	b, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- b.Serve(context.Background()) }()
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return b
}

var versions = []struct {
	name    string
	version byte
}{{"3.1.1", 4}, {"5", 5}}

// Promise 1: a publish is acknowledged only when it is durable; a window of 100
// shares commits, and is acknowledged in the order of the publishes.
func TestAcknowledgementMeansDurable(t *testing.T) {
	for _, v := range versions {
		for qos, kind := range map[byte]byte{1: packets.Puback, 2: packets.Pubrec} {
			t.Run(fmt.Sprintf("MQTT %s QoS %d", v.name, qos), func(t *testing.T) {
				sink := newGroupSink(t, time.Millisecond)
				b := start(t, Options{Sink: sink})
				c := dial(t, b, v.version, "sensor")
				sink.hold(true)
				var want []string
				for i := range 100 {
					p := fmt.Sprint(i)
					want = append(want, p)
					c.send(publish(uint16(i+1), qos, "t", p))
				}
				sink.awaitPending(t, 100)
				c.expectQuiet()
				sink.hold(false)
				for i := range 100 {
					c.expect(kind, uint16(i+1))
				}
				sink.awaitValues(t, want...)
				if got := sink.count(); got > 2 {
					t.Errorf("commits: got %d for a window of 100, want at most 2", got)
				}
			})
		}
	}
}

// A message without readings is acknowledged in its turn too.
func TestOrderOfAcknowledgements(t *testing.T) {
	sink := newGroupSink(t, 0)
	b := start(t, Options{Sink: sink})
	c := dial(t, b, 4, "sensor")
	sink.hold(true)
	c.send(publish(1, 1, "t", "a"), publish(2, 1, "t", "state"), publish(3, 2, "t", "b"), publish(4, 1, "t", "state"))
	sink.awaitPending(t, 2)
	c.expectQuiet()
	sink.hold(false)
	c.expect(packets.Puback, 1)
	c.expect(packets.Puback, 2)
	c.expect(packets.Pubrec, 3)
	c.expect(packets.Puback, 4)
}

// F7 and the window: a client that sends more than the broker wants to hold is
// not read, and not disconnected.
func TestWindowIsBounded(t *testing.T) {
	for _, v := range versions {
		t.Run(v.name, func(t *testing.T) {
			sink := newGroupSink(t, 0)
			b := start(t, Options{Sink: sink})
			c := dial(t, b, v.version, "sensor")
			sink.hold(true)
			const n = windowSize + 500
			for i := range n {
				c.send(publish(uint16(i+1), 1, "t", "x"))
			}
			sink.awaitPending(t, windowSize)
			sink.hold(false)
			for i := range n {
				c.expect(packets.Puback, uint16(i+1))
			}
		})
	}
}

// A client that lost its acknowledgement sends the publish again, with DUP, on
// its next connection: stored once, acknowledged there.
func TestAcknowledgementLostWithTheConnection(t *testing.T) {
	for qos, kind := range map[byte]byte{1: packets.Puback, 2: packets.Pubrec} {
		t.Run(fmt.Sprintf("QoS %d", qos), func(t *testing.T) {
			sink := newGroupSink(t, 0)
			b := start(t, Options{Sink: sink})
			sub := dial(t, b, 4, "reader")
			sub.subscribe(packets.Subscription{Filter: "#", Qos: 0})
			sink.hold(true)
			first := dial(t, b, 4, "sensor", keepSession)
			first.send(publish(7, qos, "t", "once"))
			sink.awaitPending(t, 1)

			// Not durable yet when the client comes back: a takeover.
			second := dial(t, b, 4, "sensor", keepSession)
			first.expectEnd()
			second.send(again(publish(7, qos, "t", "once")))
			sink.awaitPending(t, 2)
			second.expectQuiet()
			sink.hold(false)
			second.expect(kind, 7)
			second.expectQuiet()
			sink.awaitValues(t, "once")

			// Durable and acknowledged, and still sent again.
			second.conn.Close()
			third := dial(t, b, 4, "sensor", keepSession)
			third.send(again(publish(7, qos, "t", "once")))
			third.expect(kind, 7)
			sink.awaitValues(t, "once")

			sub.expectMessage("once")
			if qos == 2 {
				sub.expectQuiet() // exactly once for subscribers too
			}
		})
	}
}

// MQTT 5.0, 4.3.3: however often PUBLISH and PUBREL are repeated, the message is
// taken once; after PUBREL the identifier means a new message.
func TestQoS2ExactlyOnce(t *testing.T) {
	for _, v := range versions {
		t.Run(v.name, func(t *testing.T) {
			sink := newGroupSink(t, 0)
			b := start(t, Options{Sink: sink})
			sub := dial(t, b, v.version, "reader")
			sub.subscribe(packets.Subscription{Filter: "t", Qos: 1})
			c := dial(t, b, v.version, "sensor")

			sink.hold(true)
			c.send(publish(1, 2, "t", "a"), again(publish(1, 2, "t", "a")))
			sink.awaitPending(t, 1)
			c.expectQuiet()
			sink.hold(false)
			c.expect(packets.Pubrec, 1)
			c.send(again(publish(1, 2, "t", "a")))
			if got := c.expect(packets.Pubrec, 1).ReasonCode; got != 0 {
				t.Errorf("PUBREC of a repeated PUBLISH: got reason %#x, want 0", got)
			}
			c.send(pubrel(1))
			if got := c.expect(packets.Pubcomp, 1).ReasonCode; got != 0 {
				t.Errorf("PUBCOMP: got reason %#x, want 0", got)
			}
			c.send(pubrel(1))
			want := byte(0)
			if v.version == 5 {
				want = packets.ErrPacketIdentifierNotFound.Code
			}
			if got := c.expect(packets.Pubcomp, 1).ReasonCode; got != want {
				t.Errorf("PUBCOMP of a repeated PUBREL: got reason %#x, want %#x", got, want)
			}
			c.send(publish(1, 2, "t", "a"))
			c.expect(packets.Pubrec, 1)
			c.send(pubrel(1))
			c.expect(packets.Pubcomp, 1)

			sink.awaitValues(t, "a", "a")
			sub.expectMessage("a")
			sub.expectMessage("a")
			sub.expectQuiet()
		})
	}
}

// The identifiers of what a client publishes and of what it receives are
// counted apart.
func TestIdentifiersOfBothDirections(t *testing.T) {
	sink := newGroupSink(t, 0)
	b := start(t, Options{Sink: sink})
	c := dial(t, b, 5, "both", keepSession)
	c.subscribe(packets.Subscription{Filter: "in", Qos: 1})
	other := dial(t, b, 5, "other")
	other.send(publish(1, 1, "in", "one"))
	other.expect(packets.Puback, 1)
	got := c.receive()
	if got.FixedHeader.Type != packets.Publish {
		t.Fatalf("got %s, want Publish", packets.PacketNames[got.FixedHeader.Type])
	}
	// Unacknowledged as yet; the client publishes under the same identifier.
	c.send(publish(got.PacketID, 1, "out", "two"), publish(got.PacketID, 2, "out", "three"))
	c.expect(packets.Puback, got.PacketID)
	c.expect(packets.Pubrec, got.PacketID)
	c.send(pubrel(got.PacketID))
	c.expect(packets.Pubcomp, got.PacketID)
	c.conn.Close()
	back := dial(t, b, 5, "both", keepSession)
	if pk := back.expectMessage("one"); !pk.FixedHeader.Dup {
		t.Error("message sent again: got DUP 0, want 1")
	}
}

// F8: storage full. MQTT 5 clients are told; others are disconnected without an
// acknowledgement, and send again; QoS 0 is dropped and counted.
func TestStorageFull(t *testing.T) {
	t.Run("5", func(t *testing.T) {
		sink := newGroupSink(t, 0)
		b := start(t, Options{Sink: sink})
		c := dial(t, b, 5, "sensor")
		sink.failWith(ingest.ErrFull)
		c.send(publish(1, 1, "t", "a"))
		pk := c.expect(packets.Puback, 1)
		if pk.ReasonCode != packets.ErrQuotaExceeded.Code || !strings.Contains(pk.Properties.ReasonString, "full") {
			t.Errorf("PUBACK: got %#x %q, want 0x97 with a reason", pk.ReasonCode, pk.Properties.ReasonString)
		}
		c.send(publish(2, 2, "t", "b"))
		if pk := c.expect(packets.Pubrec, 2); pk.ReasonCode != packets.ErrQuotaExceeded.Code {
			t.Errorf("PUBREC: got %#x, want 0x97", pk.ReasonCode)
		}
		c.send(publish(0, 0, "t", "c"))
		c.expectQuiet()
		sink.await(t, "all refused", func() bool { return len(sink.pending) == 0 })
		sink.failWith(nil)
		c.send(publish(2, 2, "t", "b"))
		if pk := c.expect(packets.Pubrec, 2); pk.ReasonCode != 0 {
			t.Errorf("PUBREC once there is room: got %#x, want 0", pk.ReasonCode)
		}
		sink.awaitValues(t, "b")
		s := b.Stats()
		if s.Refused["full"] != 2 || s.Dropped != 1 {
			t.Errorf("got refused %v dropped %d, want full 2 and 1", s.Refused, s.Dropped)
		}
	})
	t.Run("3.1.1", func(t *testing.T) {
		sink := newGroupSink(t, 0)
		b := start(t, Options{Sink: sink})
		c := dial(t, b, 4, "sensor", keepSession)
		c.send(publish(1, 1, "t", "a"))
		c.expect(packets.Puback, 1)
		sink.failWith(ingest.ErrFull)
		c.send(publish(2, 1, "t", "b"), publish(3, 2, "t", "c"))
		c.expectEnd()
		sink.failWith(nil)
		c = dial(t, b, 4, "sensor", keepSession)
		c.send(again(publish(2, 1, "t", "b")), again(publish(3, 2, "t", "c")))
		c.expect(packets.Puback, 2)
		c.expect(packets.Pubrec, 3)
		sink.awaitValues(t, "a", "b", "c")
	})
}

// promises keeps what it has been given, and what is to be called of it.
type promises chan promise

type promise struct {
	ctx  context.Context
	done func(error)
}

func (p promises) Append(ctx context.Context, _ reading.Batch, done func(error)) error {
	p <- promise{ctx, done}
	return nil
}

// A client that sends again what was refused has what it sent behind that refused
// as well (promise 4): the sink learns it from the context. With MQTT 5 a refusal
// is an answer, and the client goes on.
func TestRefusalEndsTheOrder(t *testing.T) {
	for _, v := range versions {
		t.Run(v.name, func(t *testing.T) {
			sink := make(promises, 2)
			b := start(t, Options{Sink: sink})
			c := dial(t, b, v.version, "sensor")
			c.send(publish(1, 1, "t", "a"), publish(2, 1, "t", "b"))
			first, second := <-sink, <-sink
			first.done(ingest.ErrFull)
			want := ingest.ErrFull
			if v.version == 5 {
				want = nil
			}
			if got := context.Cause(second.ctx); got != want {
				t.Errorf("the second's context: got %v, want %v", got, want)
			}
		})
	}
}

// A batch that cannot be read: MQTT 5 says so, otherwise it is kept raw.
func TestUnusablePayload(t *testing.T) {
	sink := newGroupSink(t, 0)
	b := start(t, Options{Sink: sink})
	c := dial(t, b, 5, "node5")
	c.send(publish(1, 1, "sink/node5/batch", "unusable"))
	pk := c.expect(packets.Puback, 1)
	if pk.ReasonCode != packets.ErrPayloadFormatInvalid.Code || pk.Properties.ReasonString != "record 3: no name" {
		t.Errorf("PUBACK: got %#x %q, want 0x99 and the decoder's error", pk.ReasonCode, pk.Properties.ReasonString)
	}
	if len(sink.values()) != 0 {
		t.Errorf("stored: got %q, want nothing", sink.values())
	}
	old := dial(t, b, 4, "node4")
	old.send(publish(1, 1, "sink/node4/batch", "unusable"))
	old.expect(packets.Puback, 1)
	sink.awaitValues(t, "unusable")
	r := sink.batches[0].Readings[0]
	if r.Flags != reading.FlagRaw || r.Device != "sink/node4/batch" || r.Name != "batch" {
		t.Errorf("raw reading: got %+v", r)
	}
}

func TestReceipts(t *testing.T) {
	sink := newGroupSink(t, 0)
	b := start(t, Options{Sink: sink})
	c := dial(t, b, 4, "sensor")
	c.send(publish(1, 1, "t", "a"), again(publish(2, 1, "t", "b")), publish(0, 0, "t", "c"))
	sink.awaitValues(t, "a", "b", "c")
	for i, want := range []reading.Receipt{
		{Sender: "mqtt:sensor", ID: receiptID(1, "t", []byte("a")), Keep: 256},
		{Sender: "mqtt:sensor", ID: receiptID(2, "t", []byte("b")), Keep: 256, Repeat: true},
		{},
	} {
		if got := sink.batches[i].Receipt; got != want {
			t.Errorf("receipt %d: got %+v, want %+v", i, got, want)
		}
	}
	// The hash is kept on disk: it must never change.
	if got, want := receiptID(0x1234, "a/b", []byte("21.5")), uint64(0xa2235160ebd31395); got != want {
		t.Errorf("receipt id: got %#x, want %#x", got, want)
	}
}

// A sink node's batch is recognised by what it says, however it is sent: a new
// message with the same batch is stored once.
func TestBatchKeepsItsReceipt(t *testing.T) {
	sink := newGroupSink(t, 0)
	receipt := reading.Receipt{Sender: "push:node", ID: 7, Keep: 256, Repeat: true}
	b := start(t, Options{Sink: sink, Decoder: receiptDecoder{receipt: receipt}})
	c := dial(t, b, 4, "sensor")
	for id := uint16(1); id <= 2; id++ {
		c.send(publish(id, 1, "sink/node/batch", "a"))
		c.expect(packets.Puback, id)
	}
	sink.awaitValues(t, "a")
	if got := sink.batches[0].Receipt; got != receipt || sink.duplicates != 1 {
		t.Errorf("got %+v and %d duplicates, want %+v and 1", got, sink.duplicates, receipt)
	}
}

// receiptDecoder gives every batch the same receipt.
type receiptDecoder struct {
	textDecoder
	receipt reading.Receipt
}

func (d receiptDecoder) Decode(m ingest.Message) (reading.Batch, error) {
	b, err := textDecoder{}.Decode(m)
	b.Receipt = d.receipt
	return b, err
}

func TestReceiptIDIsFNV1a(t *testing.T) {
	h := fnv.New64a()
	h.Write([]byte("\x34\x12a/b\x0021.5"))
	if got, want := receiptID(0x1234, "a/b", []byte("21.5")), h.Sum64(); got != want {
		t.Errorf("got %#x, want %#x", got, want)
	}
}

// An MQTT 5 client is told why its packet ended the connection.
func TestDisconnectSaysWhy(t *testing.T) {
	b := start(t, Options{Sink: newGroupSink(t, 0), MaxPacket: 1000})
	for name, c := range map[string]struct {
		bytes []byte
		want  byte
	}{
		"too large":         {[]byte{0x30, 0xff, 0x7f}, 0x95},
		"malformed":         {[]byte{0x30, 4, 0, 9, 't', 0}, 0x81},
		"protocol violated": {encodePacket(t, 5, publish(1, 0, "a/+", "x")), 0x82},
	} {
		cl := dial(t, b, 5, name)
		cl.conn.Write(c.bytes)
		pk := cl.receive()
		if pk.FixedHeader.Type != packets.Disconnect || pk.ReasonCode != c.want {
			t.Errorf("%s: got %s %#x, want Disconnect %#x", name, packets.PacketNames[pk.FixedHeader.Type], pk.ReasonCode, c.want)
		}
		if pk, err := cl.read(10 * time.Second); err == nil {
			t.Errorf("%s: got %s after it, want the end", name, packets.PacketNames[pk.FixedHeader.Type])
		}
	}
}
