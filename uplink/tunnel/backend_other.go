//go:build !linux

package tunnel

import "log/slog"

func openBackend(*slog.Logger) (backend, error) { return nil, ErrUnsupported }
