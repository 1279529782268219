//go:build !linux

package e2e

import "testing"

// smallDisk needs Linux.
func smallDisk(t *testing.T, _ string) string {
	t.Helper()
	t.Skip("only Linux has tmpfs")
	return ""
}
