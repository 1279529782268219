package outputtest

import (
	"fmt"
	"syscall"
	"testing"
)

// SmallDisk mounts a file system of so many bytes, for the test's time.
func SmallDisk(t *testing.T, size int) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		t.Fatalf("mount a small tmpfs: %v: run this test as root, or in a user namespace: unshare -rm go test", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}
