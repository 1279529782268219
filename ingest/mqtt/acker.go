package mqtt

import (
	"sync"

	paho "github.com/eclipse/paho.mqtt.golang"
)

// delivery is a message that the broker wants acknowledged.
type delivery struct {
	acker   *acker
	message paho.Message
	settled bool
}

// done is told by the sink how the message fared; it does not block.
func (d *delivery) done(err error) {
	if err != nil {
		d.acker.refused(err)
		return
	}
	d.acker.settle(d)
}

// acker acknowledges messages in the order in which they came (MQTT 3.1.1,
// 4.6), each as soon as it and all before it are settled. The acknowledging
// itself may block on the connection and has a goroutine of its own.
type acker struct {
	refused func(error) // must not block

	mu     sync.Mutex // guards what follows
	queue  []*delivery
	acked  uint64
	ended  bool
	empty  chan struct{} // closed when the queue becomes empty; nil if nobody asked
	wake   chan struct{} // holds one token while the first may be settled
	closed chan struct{} // closed when run has returned
}

func newAcker(refused func(error)) *acker {
	return &acker{refused: refused, wake: make(chan struct{}, 1), closed: make(chan struct{})}
}

// expect enters a message behind those that came before it.
func (a *acker) expect(m paho.Message) *delivery {
	d := &delivery{acker: a, message: m}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queue = append(a.queue, d)
	return d
}

func (a *acker) settle(d *delivery) {
	a.mu.Lock()
	defer a.mu.Unlock()
	d.settled = true
	if a.queue[0].settled {
		a.signal()
	}
}

// signal wakes run; mu is held.
func (a *acker) signal() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// run acknowledges until end is called.
func (a *acker) run() {
	defer close(a.closed)
	var ready []*delivery
	for range a.wake {
		a.mu.Lock()
		n := 0
		for n < len(a.queue) && a.queue[n].settled {
			n++
		}
		ready = append(ready[:0], a.queue[:n]...)
		clear(a.queue[:n])
		a.queue = a.queue[n:] // append moves the rest once it needs room
		ended := a.ended
		a.mu.Unlock()
		for _, d := range ready {
			d.message.Ack()
		}
		a.mu.Lock()
		a.acked += uint64(n)
		if a.empty != nil && len(a.queue) == 0 {
			close(a.empty)
			a.empty = nil
		}
		a.mu.Unlock()
		clear(ready)
		if ended {
			return
		}
	}
}

// whenEmpty returns a channel that is closed once nothing is outstanding; it is
// asked once, when no message is expected any more.
func (a *acker) whenEmpty() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	empty := make(chan struct{})
	a.empty = empty
	a.signal() // run looks, even if nothing settles
	return empty
}

// end lets run acknowledge what is settled by now, and waits for it.
func (a *acker) end() {
	a.mu.Lock()
	a.ended = true
	a.signal()
	a.mu.Unlock()
	<-a.closed
}

// counts returns how many messages wait for their acknowledgement and how many
// were acknowledged.
func (a *acker) counts() (outstanding int, acked uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.queue), a.acked
}
