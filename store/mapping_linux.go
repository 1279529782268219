package store

import "golang.org/x/sys/unix"

// letGo takes the pages of a file's mapping out of the process's memory; they
// stay in the system's cache and come back when looked at.
func letGo(data, size uintptr) {
	// A refusal changes nothing but the memory use.
	_, _, _ = unix.Syscall(unix.SYS_MADVISE, data, size, unix.MADV_DONTNEED)
}
