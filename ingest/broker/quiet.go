package broker

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// quietInterval is how often the same log message is let through.
	quietInterval = 10 * time.Second
	// quietMaximum bounds how many different messages are told apart.
	quietMaximum = 256
)

// quietHandler passes each message once in quietInterval and then says how many
// like it were left out: a client may cause the same line thousands of times an
// hour. It leaves out whole packets, which the library logs with their payload.
type quietHandler struct {
	next  slog.Handler
	level slog.Level
	*quietState
}

type quietState struct {
	mu   sync.Mutex // guards seen
	seen map[string]*quietEntry
}

type quietEntry struct {
	last    time.Time
	omitted int
}

func newQuietHandler(next slog.Handler, level slog.Level) *quietHandler {
	return &quietHandler{next, level, &quietState{seen: map[string]*quietEntry{}}}
}

func (h *quietHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= h.level && h.next.Enabled(ctx, l)
}

func (h *quietHandler) Handle(ctx context.Context, r slog.Record) error {
	h.mu.Lock()
	e := h.seen[r.Message]
	if e == nil {
		if len(h.seen) >= quietMaximum {
			clear(h.seen)
		}
		e = &quietEntry{}
		h.seen[r.Message] = e
	} else if r.Time.Sub(e.last) < quietInterval {
		e.omitted++
		h.mu.Unlock()
		return nil
	}
	omitted := e.omitted
	e.last, e.omitted = r.Time, 0
	h.mu.Unlock()

	out := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != "pk" && a.Key != "packet" && a.Key != "will" {
			out.AddAttrs(a)
		}
		return true
	})
	if omitted > 0 {
		out.AddAttrs(slog.Int("omitted", omitted))
	}
	return h.next.Handle(ctx, out)
}

func (h *quietHandler) WithAttrs(as []slog.Attr) slog.Handler {
	return &quietHandler{h.next.WithAttrs(as), h.level, h.quietState}
}

func (h *quietHandler) WithGroup(name string) slog.Handler {
	return &quietHandler{h.next.WithGroup(name), h.level, h.quietState}
}
