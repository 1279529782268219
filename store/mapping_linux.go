package store

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// letGo takes the pages of a file's mapping out of the process's memory; they
// stay in the system's cache and come back when looked at.
func letGo(data, size uintptr) {
	// A refusal changes nothing but the memory use.
	_, _, _ = unix.Syscall(unix.SYS_MADVISE, data, size, unix.MADV_DONTNEED)
}

// letGoPause is short: bbolt looks at gigabytes a second if they are cached.
const letGoPause = time.Millisecond

// keepLettingGo does so with the mapping of the file at path, which bbolt does
// not name before its Open returns, until the returned function is called. The
// file must be one that stays mapped until then.
func keepLettingGo(path string) (end func()) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(letGoPause)
		defer ticker.Stop()
		var data, size uintptr
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
			}
			if size == 0 {
				data, size = mappingOf(path)
			}
			if size > 0 {
				letGo(data, size)
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
	}
}

// mappingOf finds where the file at path is mapped; size is 0 if it is not.
func mappingOf(path string) (data, size uintptr) {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return 0, 0
	}
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return 0, 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// The device is not compared: some file systems show another one here.
		var end uintptr
		var inode uint64
		var rights, offset, device string
		n, _ := fmt.Sscanf(lines.Text(), "%x-%x %s %s %s %d", &data, &end, &rights, &offset, &device, &inode)
		if n == 6 && inode == st.Ino && strings.HasSuffix(lines.Text(), "/"+filepath.Base(path)) {
			return data, end - data
		}
	}
	return 0, 0
}
