package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const (
	// ballastSize is enough for a few commits that only delete: bbolt writes new
	// pages even then.
	ballastSize = 512 << 10
	// ballastRoom is how much must be free before the reserve is laid in again.
	ballastRoom = 8 * ballastSize
)

// ballast is a file beside the database that is given up when the disk is full,
// so that what the far end has can still be deleted.
type ballast struct {
	path string
	held bool
}

// create lays the reserve in, unless it is there or the disk is nearly full.
func (b *ballast) create() error {
	if info, err := os.Stat(b.path); err == nil && info.Size() == ballastSize {
		b.held = true
		return nil
	}
	if free, err := diskFree(filepath.Dir(b.path)); err != nil || free < ballastRoom {
		return err
	}
	// Not zeroes: a file system may keep those without giving blocks to them.
	fill := make([]byte, ballastSize)
	for i := range fill {
		fill[i] = byte(i*7 + 1)
	}
	f, err := os.OpenFile(b.path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(fill)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		os.Remove(b.path)
		return fmt.Errorf("write %s: %w", b.path, err)
	}
	b.held = true
	return nil
}

// release gives the reserve up, and reports whether there was one.
func (b *ballast) release() bool {
	held := b.held
	b.held = false
	if err := os.Remove(b.path); err != nil {
		return false
	}
	return held
}
