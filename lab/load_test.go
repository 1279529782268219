package lab

import (
	"bufio"
	"context"
	"net"
	"sync"
	"testing"
	"time"
)

// stubborn is a broker for tests that hangs up again and again, each time
// without acknowledging the last message it took.
type stubborn struct {
	net.Listener
	hangUp int // connections end after so many publishes

	mu    sync.Mutex
	taken map[string]int // publishes taken, by payload
	dups  int
}

func (b *stubborn) serve() {
	for {
		c, err := b.Accept()
		if err != nil {
			return
		}
		b.talk(&mqttConn{Conn: c, r: bufio.NewReader(c)})
		c.Close()
	}
}

func (b *stubborn) talk(c *mqttConn) {
	for n := 0; n < b.hangUp; {
		kind, body, err := c.next()
		if err != nil {
			return
		}
		switch kind &^ mqttDup {
		case mqttConnect:
			c.Write([]byte{mqttConnack, 2, 0, 0})
		case mqttPublish | 0x02:
			n++
			topic := 2 + int(body[0])<<8 + int(body[1])
			b.mu.Lock()
			if kind&mqttDup != 0 {
				b.dups++
			}
			b.taken[string(body[topic+2:])]++
			if n < b.hangUp {
				c.Write([]byte{mqttPuback, 2, body[topic], body[topic+1]})
			}
			b.mu.Unlock()
		case mqttDisconnect:
			return
		}
	}
}

func TestLoadRepeatsUntilAcknowledged(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &stubborn{Listener: l, hangUp: 12, taken: make(map[string]int)}
	var serving sync.WaitGroup
	serving.Go(func() { b.serve() })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	load := StartLoad(ctx, LoadOptions{Address: l.Addr().String(), Feeds: []Feed{NewSensors(0, 1)}, Window: 16, Messages: 300})
	if err := load.Wait(ctx); err != nil {
		t.Error(err)
	}
	l.Close()
	serving.Wait()
	if got, want := load.Acked(), uint64(300); got != want {
		t.Errorf("acknowledged: got %d, want %d", got, want)
	}
	if got, want := len(b.taken), 300; got != want {
		t.Errorf("different messages that the broker took: got %d, want %d", got, want)
	}
	if b.dups == 0 || load.Reconnects() == 0 {
		t.Errorf("the broker hung up, but nothing was sent again: %d repeats, %d reconnects", b.dups, load.Reconnects())
	}
}
