// Package reading holds what every other package speaks of: a sensor's reading
// with its exact value and the quality of its time, the batch that is stored
// and carried as one, and the compact encoding of batches.
package reading

import "fmt"

// Reading is one value that one device reported at one instant.
type Reading struct {
	Device string // who measured, as its owner names it: "kitchen/lamp"
	Name   string // what was measured; nested fields are dotted: "color.x"
	Unit   string // a SenML unit (RFC 8428, 12.1), or empty if unknown
	Value  Value
	Time   Time
	Flags  Flags
}

// Flags mark a reading that its consumer should look at twice.
type Flags uint8

const (
	// FlagInvalid marks a number that is a known "no measurement" sentinel of
	// its kind of device, such as -32768; it is passed on as it came.
	FlagInvalid Flags = 1 << iota
	// FlagRetained marks a message that the broker had kept: it may be old.
	FlagRetained
	// FlagRaw marks a payload that could not be read; its value is the payload
	// as it came, its name the reason in one word ("json", "utf8", "depth").
	FlagRaw
)

// Quality says how far a reading's wall time can be trusted.
type Quality uint8

const (
	// Synchronised: stamped on arrival by the gateway's clock, which was set.
	Synchronised Quality = iota
	// FromDevice: the sensor or sink node said when it measured.
	FromDevice
	// Unsynchronised: stamped on arrival while the gateway's clock was not set
	// yet; Boot and Mono let the wall time be computed later.
	Unsynchronised
)

// Time is when a reading was taken.
type Time struct {
	Wall    int64 // nanoseconds since 1970-01-01 UTC
	Quality Quality
	Boot    uint64 // which boot of the gateway; 0 unless Unsynchronised
	Mono    int64  // nanoseconds since that boot; 0 unless Unsynchronised
}

// Lane is a queue of its own within a gateway: order holds within a lane, and
// a lower lane overtakes a higher one.
type Lane uint8

// The lanes, most urgent first.
const (
	Alarm Lane = iota
	Live
	Backfill
	Lanes = 3 // how many there are
)

func (l Lane) String() string {
	switch l {
	case Alarm:
		return "alarm"
	case Live:
		return "live"
	case Backfill:
		return "backfill"
	}
	return fmt.Sprintf("lane(%d)", uint8(l))
}

// Batch is what a source hands over as one: it becomes durable whole or not at
// all.
type Batch struct {
	// Lane is Live for what just arrived, Alarm by rule, Backfill for what a
	// sink node says is old. The store turns Live into Backfill while the
	// uplink does not deliver.
	Lane     Lane
	Readings []Reading
	Receipt  Receipt
}

// Receipt identifies a delivery by its sender, so that the same one delivered
// again after a lost acknowledgement is kept once. The zero Receipt asks for
// nothing to be remembered.
type Receipt struct {
	// Sender has a memory of its own: "mqtt:<client id>", "push:<node>".
	Sender string
	// ID is the same when the sender repeats the delivery: a hash of packet
	// identifier, topic and payload, or of the batch id.
	ID uint64
	// Keep is how many of the sender's last deliveries are remembered.
	Keep int
	// Repeat says that this may be a repetition (MQTT's DUP flag; always true
	// for pushes): only then is the memory consulted.
	Repeat bool
}

// Segment is a run of a lane's readings as the queue stores it and a frame
// carries it: reading number i of Data (0 <= i < Count) has the sequence number
// First+i. Sequence numbers start at 1; gaps between segments are readings that
// the quota removed.
type Segment struct {
	First uint64
	Count int
	Data  []byte // encoded by AppendBatch
}

// Last is the sequence number of the segment's last reading.
func (s Segment) Last() uint64 { return s.First + uint64(s.Count) - 1 }
