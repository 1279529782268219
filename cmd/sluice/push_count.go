package main

import (
	"context"
	"net/http"
	"sync/atomic"

	"sluice/ingest"
	"sluice/reading"
)

// pushCount counts what sink nodes push.
type pushCount struct {
	batches, readings, refused atomic.Uint64
}

// sink counts readings that become durable through it.
func (c *pushCount) sink(next ingest.Sink) ingest.Sink { return countedSink{next, c} }

type countedSink struct {
	next  ingest.Sink
	count *pushCount
}

func (s countedSink) Append(ctx context.Context, b reading.Batch, done func(error)) error {
	n := uint64(len(b.Readings))
	return s.next.Append(ctx, b, func(err error) {
		if err == nil {
			s.count.readings.Add(n)
		}
		done(err)
	})
}

// handler counts answers.
func (c *pushCount) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := &countedAnswer{ResponseWriter: w, code: http.StatusOK}
		next.ServeHTTP(answer, r)
		c.batches.Add(1)
		if answer.code >= 300 {
			c.refused.Add(1)
		}
	})
}

type countedAnswer struct {
	http.ResponseWriter
	code int
}

func (a *countedAnswer) WriteHeader(code int) {
	a.code = code
	a.ResponseWriter.WriteHeader(code)
}

// Unwrap lets http.ResponseController set deadlines.
func (a *countedAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
