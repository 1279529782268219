// Package uplink sends what the queue holds to a collector, over whatever
// carriers have joined its session, and removes from the queue what the
// collector has made durable.
//
// A Slot is one carrier that a Sender keeps. Which slots there are, and which of
// them are on standby, is decided elsewhere and may change at any time: Plan and
// Abandon. What one carrier does not deliver goes again on the others; the
// collector drops what comes twice.
//
// One goroutine, run in session.go, owns the lanes and decides what goes next.
// Each slot has a goroutine that dials (slot.go), each carrier one that writes
// and one that reads (link.go). The flow of a reading: Queue.Next, held in its
// lane (lane.go), chosen (schedule.go), packed into a frame (frame.go), written
// (feed.go), a span in flight, acknowledged (acks.go), Queue.Ack; or late, and
// sent again (watch.go).
package uplink
