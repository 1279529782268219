//go:build !linux

package experiment

import "context"

// measures is empty: only Linux has what it takes.
func measures() map[string]func(context.Context, *bench) error { return nil }
