package broker

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"sluice/ingest"
	"sluice/reading"
)

// sixReadings is what a decoder makes of such a payload, at no cost.
type sixReadings struct {
	textDecoder
	readings []reading.Reading
}

func (d sixReadings) Decode(ingest.Message) (reading.Batch, error) {
	return reading.Batch{Lane: reading.Live, Readings: d.readings}, nil
}

// BenchmarkPublish is eight clients with a window of 100 each, QoS 1, payloads
// of 120 bytes, against a sink that commits every 2 ms. The clients write
// prepared bytes and count acknowledgements, in the same process.
func BenchmarkPublish(b *testing.B) {
	const clients, window = 8, 100
	for _, subscribers := range []int{0, 1} {
		b.Run(fmt.Sprintf("subscribers=%d", subscribers), func(b *testing.B) {
			sink := newGroupSink(b, 2*time.Millisecond)
			sink.discard = true
			br := start(b, Options{Sink: sink, Decoder: sixReadings{readings: make([]reading.Reading, 6)}})
			for i := range subscribers {
				c := dial(b, br, 4, fmt.Sprint("reader", i))
				c.subscribe(packets.Subscription{Filter: "#", Qos: 0})
				c.conn.SetDeadline(time.Now().Add(time.Minute))
				go io.Copy(io.Discard, c.conn)
			}
			var conns []net.Conn
			for i := range clients {
				conns = append(conns, dial(b, br, 4, fmt.Sprint("sensor", i)).conn)
			}
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			for i, nc := range conns {
				n := b.N / clients
				if i < b.N%clients {
					n++
				}
				wg.Go(func() { publishWindowed(b, nc, fmt.Sprint("zigbee2mqtt/room", i), n, window) })
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}

// publishWindowed publishes n messages, window at most unacknowledged.
func publishWindowed(t testing.TB, nc net.Conn, topic string, n, window int) {
	payload := `{"battery":100,"humidity":48.51,"linkquality":120,"pressure":1012.3,"temperature":21.51,"voltage":3005,"pad":"xxxxxx"}`
	packet := encodePacket(t, 4, publish(1, 1, topic, payload))
	at := 2 + 2 + len(topic) // of the identifier; the length takes two bytes
	if len(packet) < 130 {
		at = 2 + 2 + len(topic)
	} else {
		at++
	}
	nc.SetDeadline(time.Now().Add(time.Minute))
	in := bufio.NewReaderSize(nc, 4096)
	var out, ack []byte
	ack = make([]byte, 4)
	sent, acked, id := 0, 0, uint16(0)
	for acked < n {
		out = out[:0]
		for sent < n && sent-acked < window {
			if id++; id == 0 {
				id = 1
			}
			packet[at], packet[at+1] = byte(id>>8), byte(id)
			out = append(out, packet...)
			sent++
		}
		if len(out) > 0 {
			if _, err := nc.Write(out); err != nil {
				t.Error(err)
				return
			}
		}
		for first := true; first || in.Buffered() >= 4; first = false {
			if _, err := io.ReadFull(in, ack); err != nil {
				t.Error(err)
				return
			}
			acked++
		}
	}
}
