package admin

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	logBurst  = 5           // equal lines that pass in one window
	logWindow = time.Minute // after which the rest is summed up
	logKinds  = 1024        // different lines that are told apart
)

// LimitLogs returns a handler that passes records on to next, but of equal ones
// only the first few a minute; the rest is summed up in one line with their
// number. Records are equal if level and message are.
func LimitLogs(next slog.Handler) slog.Handler {
	return &logLimit{next: next, shared: &logCounts{root: next, counts: map[logKind]*logCount{}}}
}

type logLimit struct {
	next   slog.Handler
	shared *logCounts // of this handler and all derived from it
}

var _ slog.Handler = (*logLimit)(nil)

type logCounts struct {
	root   slog.Handler // writes the sums: they speak of no single client or topic
	mu     sync.Mutex   // guards counts; not held while a record is written
	counts map[logKind]*logCount
}

type logKind struct {
	level   slog.Level
	message string
}

type logCount struct {
	began      time.Time
	passed     int
	suppressed int
}

// Enabled asks next.
func (l *logLimit) Enabled(ctx context.Context, level slog.Level) bool {
	return l.next.Enabled(ctx, level)
}

// WithAttrs returns a handler that counts together with this one.
func (l *logLimit) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &logLimit{next: l.next.WithAttrs(attrs), shared: l.shared}
}

// WithGroup returns a handler that counts together with this one.
func (l *logLimit) WithGroup(name string) slog.Handler {
	return &logLimit{next: l.next.WithGroup(name), shared: l.shared}
}

// Handle passes the record on or counts it.
func (l *logLimit) Handle(ctx context.Context, r slog.Record) error {
	if !l.pass(logKind{r.Level, r.Message}) {
		return nil
	}
	return l.next.Handle(ctx, r)
}

func (l *logLimit) pass(kind logKind) bool {
	c := l.shared
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now() // has a monotonic part: a step of the clock does not matter
	n := c.counts[kind]
	// A window in which something was suppressed ends in summary, not here.
	if n == nil || n.suppressed == 0 && now.Sub(n.began) >= logWindow {
		if n == nil && !c.room(now) {
			return true
		}
		n = &logCount{began: now}
		c.counts[kind] = n
	}
	if n.passed < logBurst {
		n.passed++
		return true
	}
	n.suppressed++
	if n.suppressed == 1 {
		time.AfterFunc(logWindow-now.Sub(n.began), func() { c.summary(kind) })
	}
	return false
}

// room reports whether one kind more can be told apart, and forgets windows
// that are over for that. Called with the lock held.
func (c *logCounts) room(now time.Time) bool {
	if len(c.counts) < logKinds {
		return true
	}
	for kind, n := range c.counts {
		if n.suppressed == 0 && now.Sub(n.began) >= logWindow {
			delete(c.counts, kind)
		}
	}
	return len(c.counts) < logKinds
}

// summary ends the window of a kind of which records were suppressed.
func (c *logCounts) summary(kind logKind) {
	c.mu.Lock()
	n := c.counts[kind]
	suppressed, over := n.suppressed, time.Since(n.began)
	delete(c.counts, kind)
	c.mu.Unlock()
	r := slog.NewRecord(time.Now(), kind.level, "the same line again: "+kind.message, 0)
	r.AddAttrs(slog.Int("times", suppressed), slog.Duration("within", over.Round(time.Second)))
	// Nobody waits for this line; a writer that fails will say so to the next.
	_ = c.root.Handle(context.Background(), r)
}
