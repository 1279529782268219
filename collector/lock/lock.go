// Package lock keeps two collectors out of one folder: neither would know what
// the other has written.
package lock

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Dir keeps other processes out of dir until the returned file is closed, or
// this process ends in whatever way.
func Dir(dir string) (*os.File, error) {
	path := filepath.Join(dir, ".lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o640)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w: another collector writes here; give each a folder of its own", path, err)
	}
	return f, nil
}
