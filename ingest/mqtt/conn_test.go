package mqtt

import (
	"bytes"
	"context"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.mqtt.golang/packets"
)

// counted is a connection whose writes are counted and may be held up.
type counted struct {
	net.Conn
	written chan []byte
	gate    chan struct{}
}

func (c *counted) Write(p []byte) (int, error) {
	<-c.gate
	c.written <- bytes.Clone(p)
	return len(p), nil
}

// Acknowledgements that come while one is being written are written together.
func TestWritesAreCollected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		raw := &counted{Conn: near, written: make(chan []byte, 10), gate: make(chan struct{})}
		c := newConn(raw, 1000)
		for i := range 100 {
			if _, err := c.Write([]byte{byte(i)}); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				synctest.Wait() // the writer has the first
			}
		}
		close(raw.gate)
		if got := len(<-raw.written); got != 1 {
			t.Errorf("first write: %d bytes, want 1", got)
		}
		if got := len(<-raw.written); got != 99 {
			t.Errorf("second write: %d bytes, want 99", got)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if _, err := c.Write([]byte{1}); err == nil {
			t.Error("write after close: got no error")
		}
	})
}

// F22 in small: a broker that reads nothing is noticed, and what is written to
// it does not fill memory.
func TestDeadBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		c := newConn(near, 1000)
		started := time.Now()
		if _, err := c.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("read: got no error")
		}
		if got := time.Since(started); got != writeTimeout {
			t.Errorf("noticed after %v, want %v", got, writeTimeout)
		}
		if _, err := c.Write(make([]byte, maxUnsent+1)); err == nil {
			t.Error("write after the failure: got no error")
		}
		c.Close()
	})
}

// What the broker sent and nobody read must not reset the connection: it would
// take acknowledgements along that the broker has yet to read.
func TestCloseDoesNotReset(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	if _, err := far.Write(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	c := newConn(near, 1000)
	if _, err := c.Write(make([]byte, 40)); err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	far.SetReadDeadline(time.Now().Add(patientFor))
	if got, err := io.ReadAll(far); len(got) != 40 || err != nil {
		t.Errorf("broker reads %d bytes, %v, want 40", len(got), err)
	}
	far.Close()
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

func TestLongPacketsAreCut(t *testing.T) {
	const limit = 300
	var in bytes.Buffer
	lengths := []int{0, 10, limit - 3, limit - 2, limit + 5000, 3}
	for i, n := range lengths {
		p := packets.NewControlPacket(packets.Publish).(*packets.PublishPacket)
		p.TopicName, p.Payload = "t", bytes.Repeat([]byte{byte('a' + i)}, n)
		if err := p.Write(&in); err != nil {
			t.Fatal(err)
		}
	}
	c := newConn(&stream{r: &in}, limit)
	defer c.Close()
	for i, n := range lengths {
		cp, err := packets.ReadPacket(c)
		if err != nil {
			t.Fatal(err)
		}
		p := cp.(*packets.PublishPacket)
		want := bytes.Repeat([]byte{byte('a' + i)}, min(n, limit-3))
		if p.TopicName != "t" || !bytes.Equal(p.Payload, want) {
			t.Errorf("packet %d: topic %q, %d bytes, want %d", i, p.TopicName, len(p.Payload), len(want))
		}
	}
	if _, err := packets.ReadPacket(c); err != io.EOF {
		t.Errorf("end: got %v, want EOF", err)
	}
	c2 := newConn(&stream{r: bytes.NewReader([]byte{packets.Suback << 4, 0xff, 0xff, 0x7f})}, limit)
	defer c2.Close()
	if _, err := packets.ReadPacket(c2); err == nil {
		t.Error("giant SUBACK: got no error")
	}
}

// stream is a connection that only reads.
type stream struct {
	net.Conn
	r io.Reader
}

func (s *stream) Read(p []byte) (int, error)       { return s.r.Read(p) }
func (s *stream) Close() error                     { return nil }
func (s *stream) SetWriteDeadline(time.Time) error { return nil }

// FuzzRead: whatever a broker sends, what is handed on is framed like MQTT and
// within the limit.
func FuzzRead(f *testing.F) {
	f.Add([]byte{0x30, 3, 0, 1, 't'}, 2)
	f.Add([]byte{0x20, 2, 0, 0, 0xd0, 0}, 1)
	f.Add([]byte{0x30, 0xff, 0xff, 0xff, 0x7f, 1}, 7)
	f.Add([]byte{0x90, 0x80, 0x80, 0x80, 0x80, 1}, 3)
	f.Fuzz(func(t *testing.T, b []byte, step int) {
		const limit = 64
		c := newConn(&stream{r: bytes.NewReader(b)}, limit)
		defer c.Close()
		step = 1 + (step&0xff)%100
		var out []byte
		for {
			p := make([]byte, step)
			n, err := c.Read(p)
			out = append(out, p[:n]...)
			if err != nil {
				break
			}
		}
		for r := bytes.NewReader(out); r.Len() > 0; {
			r.ReadByte()
			n, err := readLength(r)
			if err != nil || n > limit {
				t.Fatalf("length %d, %v in %x", n, err, out)
			}
			io.CopyN(io.Discard, r, int64(n))
		}
	})
}

// message is a paho.Message that notes its acknowledgement.
type message struct {
	qos   byte
	id    uint16
	acked func(uint16)
}

func (m message) Duplicate() bool   { return false }
func (m message) Qos() byte         { return m.qos }
func (m message) Retained() bool    { return false }
func (m message) Topic() string     { return "t" }
func (m message) MessageID() uint16 { return m.id }
func (m message) Payload() []byte   { return []byte("1") }
func (m message) Ack()              { m.acked(m.id) }

// Messages are acknowledged in the order they came, whatever the order in which
// they are settled (MQTT 3.1.1, 4.6).
func TestAckerKeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []uint16
		a := newAcker(func(error) { t.Error("refused") })
		go a.run()
		var ds []*delivery
		for i := range uint16(5) {
			ds = append(ds, a.expect(message{1, i, func(id uint16) { got = append(got, id) }}))
		}
		for _, i := range []int{2, 1} {
			ds[i].done(nil)
		}
		synctest.Wait()
		if len(got) != 0 {
			t.Errorf("acknowledged %v before the first was durable", got)
		}
		ds[0].done(nil)
		synctest.Wait()
		if want := []uint16{0, 1, 2}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		empty := a.whenEmpty()
		ds[4].done(nil)
		ds[3].done(nil)
		<-empty
		if want := []uint16{0, 1, 2, 3, 4}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		a.end()
		if waiting, acked := a.counts(); waiting != 0 || acked != 5 {
			t.Errorf("got %d waiting, %d acknowledged", waiting, acked)
		}
	})
}

// The name is resolved and the connection given up with the context.
func TestDialEndsWithTheSession(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := &Client{o: Options{MaxPayload: 10}, address: l.Addr().String()}
	life, die := context.WithCancel(t.Context())
	conn, err := c.dial(life)
	if err != nil {
		t.Fatal(err)
	}
	die()
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("read after the session: got no error")
	}
}
