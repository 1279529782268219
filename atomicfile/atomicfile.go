// Package atomicfile replaces small files so that a cut of power leaves the old
// content or the new one, whole.
package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
)

// Write gives the file at path new content. When it returns nil, the content
// outlives a cut of power; otherwise the file is as it was, or new all the same if
// only its folder could not be synced. A new file, and the one that is replaced,
// only its owner may read.
func Write(path string, content []byte) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".new-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncFolder(dir)
}

// syncFolder makes the names in a folder outlive a cut of power.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
