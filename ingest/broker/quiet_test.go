package broker

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// F31: the same line thousands of times an hour.
func TestQuietHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(newQuietHandler(slog.NewTextHandler(&out, nil), slog.LevelWarn)).With("listener", "l")
		for range 1000 {
			log.Warn("refused", "pk", "a whole packet")
			log.Info("not shown")
		}
		log.Warn("another")
		time.Sleep(quietInterval)
		log.Warn("refused")
		got := out.String()
		for want, n := range map[string]int{"refused": 2, "another": 1, "omitted=999": 1, "whole packet": 0, "not shown": 0, "listener=l": 3} {
			if c := strings.Count(got, want); c != n {
				t.Errorf("%q: got %d times, want %d in\n%s", want, c, n, got)
			}
		}
	})
}
