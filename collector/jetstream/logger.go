package jetstream

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// logger hands the server's words to slog. Its notices are about itself and
// become debug messages.
type logger struct {
	log   *slog.Logger
	once  sync.Once
	fatal chan struct{} // closed when the server cannot run
	why   string        // read it after fatal is closed
}

var _ server.Logger = (*logger)(nil)

func (l *logger) Debugf(string, ...any) {}
func (l *logger) Tracef(string, ...any) {}

func (l *logger) Noticef(format string, args ...any) {
	l.log.Debug("nats server: " + fmt.Sprintf(format, args...))
}

func (l *logger) Warnf(format string, args ...any) {
	if strings.HasPrefix(format, "Plaintext passwords") {
		return // of a configuration file, which this server does not have
	}
	l.log.Warn("nats server: " + fmt.Sprintf(format, args...))
}

func (l *logger) Errorf(format string, args ...any) {
	l.log.Error("nats server: " + fmt.Sprintf(format, args...))
}

// Fatalf is what the server calls before it gives up starting; it has no other
// way to say so.
func (l *logger) Fatalf(format string, args ...any) {
	l.once.Do(func() {
		l.why = fmt.Sprintf(format, args...)
		close(l.fatal)
	})
}

// awaitStart returns when s is ready, or why it will not be.
func (l *logger) awaitStart(s *server.Server) error {
	deadline := time.Now().Add(startTimeout)
	for !s.ReadyForConnections(startCheck) {
		select {
		case <-l.fatal:
			return errors.New(l.why)
		default:
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not ready within %v", startTimeout)
		}
	}
	return nil
}
