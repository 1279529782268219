package e2e

import (
	"syscall"
	"testing"
)

// smallDisk mounts a file system of a size such as "16m" for one test.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("sluice-e2e", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Fatalf("mount a small file system: %v: run the tests as root, or in a container that may mount", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}
