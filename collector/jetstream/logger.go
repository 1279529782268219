package jetstream

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/nats-io/nats-server/v2/server"
)

// logger hands the server's words to slog. Its notices are about itself and
// become debug messages.
type logger struct {
	log  *slog.Logger
	last atomic.Pointer[string] // the last error, for a failed start
}

var _ server.Logger = (*logger)(nil)

func (l *logger) Debugf(string, ...any) {}
func (l *logger) Tracef(string, ...any) {}

func (l *logger) Noticef(format string, args ...any) {
	l.log.Debug("nats server: " + fmt.Sprintf(format, args...))
}

func (l *logger) Warnf(format string, args ...any) {
	l.log.Warn("nats server: " + fmt.Sprintf(format, args...))
}

func (l *logger) Errorf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	l.last.Store(&text)
	l.log.Error("nats server: " + text)
}

func (l *logger) Fatalf(format string, args ...any) { l.Errorf(format, args...) }

func (l *logger) lastError() error {
	if text := l.last.Load(); text != nil {
		return errors.New(*text)
	}
	return nil
}
