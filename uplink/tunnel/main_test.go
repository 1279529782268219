package tunnel

import (
	"log/slog"
	"os"
	"testing"
)

// TestMain runs the tests, or one end of a tunnel for a test that needs it in a
// process of its own.
func TestMain(m *testing.M) {
	if role := os.Getenv("SLUICE_TUNNEL_ROLE"); role != "" {
		os.Exit(act(role))
	}
	os.Exit(m.Run())
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
