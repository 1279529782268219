package broker

import (
	"sync/atomic"

	"github.com/mochi-mqtt/server/v2/packets"
)

const (
	// queueSize and queueBytes are how many messages, and of what size, wait
	// for one subscriber: of QoS 0 for one that is connected, and again of QoS
	// 1 and 2 for one that is connected or away. queuesBytes is the size of
	// those of all subscribers. What does not fit is dropped and counted.
	queueSize   = 1024
	queueBytes  = 2 << 20
	queuesBytes = 16 << 20
	// messageCost is about what the library needs for a message beside its
	// topic and payload.
	messageCost = 1 << 10
)

// allowance is what waits for a subscriber, against its limits. Whoever has it
// guards it, except for what all have together.
type allowance struct {
	messages, bytes int
	all             *atomic.Int64
}

// take returns false if n bytes more are too many. A message that is larger
// than the limit may wait alone.
func (a *allowance) take(n int) bool {
	if a.messages >= queueSize || a.messages > 0 && a.bytes+n > queueBytes {
		return false
	}
	if all := a.all.Add(int64(n)); all > queuesBytes && all > int64(n) {
		a.all.Add(int64(-n))
		return false
	}
	a.messages++
	a.bytes += n
	return true
}

// give takes a message of n bytes off.
func (a *allowance) give(n int) {
	a.messages--
	a.bytes -= n
	a.all.Add(int64(-n))
}

// clear takes off everything.
func (a *allowance) clear() {
	a.all.Add(int64(-a.bytes))
	a.messages, a.bytes = 0, 0
}

// messageSize is what a message counts for. Remaining covers its properties; it
// is 0 for what did not come over the network.
func messageSize(pk *packets.Packet) int {
	return messageCost + max(pk.FixedHeader.Remaining, len(pk.TopicName)+len(pk.Payload))
}
