package uplink

import "sluice/reading"

// Queue is where readings wait until the collector has them.
type Queue interface {
	// Epoch names this life of the queue: sequence numbers mean nothing in
	// another.
	Epoch() uint64
	// Next returns segments of a lane, in order, that end after the given
	// sequence number: about maxBytes of them, but at least one if there is any.
	// The first may begin at or before after. The caller owns the memory.
	Next(lane reading.Lane, after uint64, maxBytes int) ([]reading.Segment, error)
	// Ack says that everything up to a sequence number may be deleted.
	Ack(lane reading.Lane, upto uint64)
	// Changed receives a value after readings were added. It has room for one,
	// and one goroutine receives from it.
	Changed() <-chan struct{}
}
