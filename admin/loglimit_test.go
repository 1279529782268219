package admin

import (
	"bytes"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

func bare() (*slog.Logger, *bytes.Buffer) {
	out := new(bytes.Buffer)
	h := slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelInfo, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
	return slog.New(LimitLogs(h)), out
}

// TestLimitLogs is field case F31: the same line thousands of times an hour.
func TestLimitLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, out := bare()
		for i := range 3600 {
			log.With("client", i).Warn("payload refused", "i", i)
			log.Debug("not even counted")
			time.Sleep(time.Second)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		lines := bytes.Count(out.Bytes(), []byte{'\n'})
		// Five lines and a sum a minute.
		if got, want := lines, 60*6; got != want {
			t.Errorf("got %d lines, want %d", got, want)
		}
		if !bytes.Contains(out.Bytes(), []byte("level=WARN msg=\"the same line again: payload refused\" times=55 within=1m0s\n")) {
			t.Errorf("no sum in\n%.1000s", out)
		}
	})
}

// TestLimitLogsTellsKindsApart checks that one flood does not hide other lines,
// and that the memory for it is bounded.
func TestLimitLogsTellsKindsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, out := bare()
		for i := range 2 * logKinds {
			log.Info("flood")
			log.Info(fmt.Sprintf("line %d", i))
		}
		log.Error("flood")
		time.Sleep(2 * logWindow)
		synctest.Wait()
		// The last is the sum.
		if got, want := bytes.Count(out.Bytes(), []byte{'\n'}), logBurst+2*logKinds+1+1; got != want {
			t.Errorf("got %d lines, want %d", got, want)
		}
	})
}
