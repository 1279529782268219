package mqtt

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"sluice/ingest"
	"sluice/reading"

	paho "github.com/eclipse/paho.mqtt.golang"
)

// BenchmarkSession measures the client without a broker: from the library's
// callback to the acknowledgement.
func BenchmarkSession(b *testing.B) {
	decoder, err := ingest.NewDecoder(ingest.DecoderOptions{})
	if err != nil {
		b.Fatal(err)
	}
	c, err := New(Options{Name: "bench", URL: "tcp://localhost", ClientID: "bench", Topics: []string{"#"},
		Sink: instant{}, Decoder: decoder, Logger: slog.New(slog.DiscardHandler),
		Now: func() reading.Time { return reading.Time{Wall: time.Now().UnixNano()} }})
	if err != nil {
		b.Fatal(err)
	}
	s := c.newSession(b.Context())
	acked := make(chan struct{}, 1<<20)
	payload := []byte(`{"battery":97,"humidity":41.27,"linkquality":120,"pressure":1013.2,"temperature":21.51,"voltage":3005}`)
	var ms []paho.Message
	for i := range 16 {
		ms = append(ms, &full{fmt.Sprint("zigbee2mqtt/", i), payload, acked})
	}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		s.receive(ms[n%len(ms)])
		n++
	}
	for range n {
		<-acked
	}
	s.finish(true)
}

// instant is a sink to which everything is durable at once.
type instant struct{}

func (instant) Append(_ context.Context, _ reading.Batch, done func(error)) error {
	done(nil)
	return nil
}

// full is a QoS 1 message.
type full struct {
	topic   string
	payload []byte
	acked   chan struct{}
}

func (m *full) Duplicate() bool   { return false }
func (m *full) Qos() byte         { return 1 }
func (m *full) Retained() bool    { return false }
func (m *full) Topic() string     { return m.topic }
func (m *full) MessageID() uint16 { return 1 }
func (m *full) Payload() []byte   { return m.payload }
func (m *full) Ack()              { m.acked <- struct{}{} }
