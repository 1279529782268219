// Package ingest turns what sensors, bridges and sink nodes send into readings
// and hands them to a sink that makes them durable.
package ingest

import (
	"context"
	"errors"

	"sluice/reading"
)

// Sink makes batches durable.
//
// Append queues b and returns; done is called exactly once, from another
// goroutine, after b is synced to disk (nil) or can never be (an error). done
// must not block. Batches appended by one goroutine become durable, and their
// done is called, in that order. The sink owns b's readings from the call on.
//
// Append blocks while the sink's queue is full, until ctx ends; then it returns
// ErrBusy and never calls done. A sender who has been refused something, and will
// send it again, cancels ctx with a cause: what it has appended behind is then
// refused as well, except for alarms, as far as it is not on its way to the disk.
type Sink interface {
	Append(ctx context.Context, b reading.Batch, done func(error)) error
}

var (
	// ErrBusy is returned when the sink cannot take a batch at present: the
	// sender should keep it and try again shortly.
	ErrBusy = errors.New("gateway busy: keep the batch and send it again")
	// ErrFull is returned when storage has reached its limit and its policy is
	// to refuse: the sender should keep the batch and try again later.
	ErrFull = errors.New("gateway storage full: keep the batch and send it again later")
)
