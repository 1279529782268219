// Package collector is the far end: it takes gateways' sessions, puts their
// readings in order, writes each once to its outputs and acknowledges what is
// durable there.
package collector

import (
	"context"
	"errors"

	"sluice/reading"
)

// Stream names the readings that share one sequence: one lane of one life of
// one gateway's store. A store that had to be created anew has a new epoch and
// counts from 1 again.
type Stream struct {
	Gateway string
	Epoch   uint64
	Lane    reading.Lane
}

// Delivery is a run of consecutive readings of a stream: reading i has the
// sequence number First+i.
type Delivery struct {
	First    uint64
	Count    int
	Readings []reading.Reading // Count of them, or none if Unreadable is set
	// Unreadable is a segment that could not be decoded, kept as it came, and
	// Reason says why. Outputs set it aside where their reader can see it.
	Unreadable []byte
	Reason     string
}

// Last is the sequence number of the delivery's last reading.
func (d Delivery) Last() uint64 { return d.First + uint64(d.Count) - 1 }

// Output keeps readings for those who consume them. It is itself the memory of
// what was delivered, so that both survive or are lost together.
//
// Calls for different streams may run at once; calls for one stream do not.
// Every call returns when ctx ends.
type Output interface {
	// Name identifies the output in logs, metrics and the status.
	Name() string
	// Last returns the sequence number of the last reading of s that the output
	// holds durably, 0 if it holds none.
	Last(ctx context.Context, s Stream) (uint64, error)
	// Write makes deliveries durable, in order, as one or not at all where the
	// output can, and returns only then. The caller has seen after as the last
	// sequence number; if that is no longer true (another collector wrote),
	// nothing is written and the error is ErrConflict. The first delivery
	// begins after it; a gap is what a gateway's quota removed.
	Write(ctx context.Context, s Stream, after uint64, ds []Delivery) error
	Close() error
}

// ErrConflict is returned by Output.Write when the stream's last sequence
// number is not the expected one.
var ErrConflict = errors.New("stream was written by another collector")
