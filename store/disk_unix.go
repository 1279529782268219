//go:build unix

package store

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// diskFree returns how many bytes the file system of dir has left for us.
func diskFree(dir string) (int64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("statfs %s: %w", dir, err)
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}

// diskFull reports whether err is the disk's or the disk quota's end.
func diskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// lockWait is how long a start waits for the lock: a process that was just
// killed may not have ended yet, and one that starts another holds the lock
// twice for a moment.
const (
	lockWait  = time.Second
	lockPause = 10 * time.Millisecond
)

// lockFile locks the store at path against other processes until the returned
// file is closed; ErrInUse if one keeps it for lockWait. bbolt's own lock comes too late: the
// file is walked, and set aside if need be, before bbolt opens it.
func lockFile(path string, exclusive bool) (*os.File, error) {
	f, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	how := syscall.LOCK_SH
	if exclusive {
		how = syscall.LOCK_EX
	}
	for end := time.Now().Add(lockWait); ; time.Sleep(lockPause) {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		switch {
		case err == nil:
			return f, nil
		case !errors.Is(err, syscall.EWOULDBLOCK):
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
		case time.Now().After(end):
			f.Close()
			return nil, ErrInUse
		}
	}
}
