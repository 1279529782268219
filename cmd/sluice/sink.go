package main

import (
	"context"
	"errors"

	"sluice/ingest"
	"sluice/reading"
	"sluice/store"
)

// sink makes batches durable in the store. It translates the store's errors
// into those that ingest knows, and keeps their text.
type sink struct{ store *store.Store }

var _ ingest.Sink = sink{}

func (s sink) Append(ctx context.Context, b reading.Batch, done func(error)) error {
	return translate(s.store.Append(ctx, b, func(err error) { done(translate(err)) }))
}

// translate returns err with the ingest error that it means to a sender.
func translate(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrFull):
		return &sinkError{ingest.ErrFull, err}
	case errors.Is(err, store.ErrBusy), errors.Is(err, store.ErrClosed):
		return &sinkError{ingest.ErrBusy, err}
	}
	return err
}

// sinkError is a store's error that also is one of ingest's.
type sinkError struct{ is, cause error }

func (e *sinkError) Error() string   { return e.cause.Error() }
func (e *sinkError) Unwrap() []error { return []error{e.is, e.cause} }
