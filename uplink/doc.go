// Package uplink sends what the queue holds to a collector, over whatever
// carriers have joined its session, and removes from the queue what the
// collector has made durable.
//
// One goroutine, run in session.go, owns the lanes and decides what goes next;
// each carrier has one goroutine that writes and one that reads, in link.go. The
// flow of a reading: Queue.Next, held in its lane (lane.go), chosen
// (schedule.go), packed into a frame (frame.go), written, a span in flight,
// acknowledged, Queue.Ack.
package uplink
