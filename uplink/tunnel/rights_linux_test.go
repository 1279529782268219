package tunnel

import (
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Who may not make devices is told what to do.
func TestNoRights(t *testing.T) {
	need(t, os.Geteuid() == 0, "root")
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // and never back: the thread ends with the goroutine
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&header, &none[0]); err != nil {
			failed <- err
			return
		}
		b, err := openBackend(quiet())
		if err == nil {
			b.close()
		}
		failed <- err
	}()
	if err := <-failed; err == nil || !strings.Contains(err.Error(), "CAP_NET_ADMIN") {
		t.Errorf("got %v, want an error that names the capability", err)
	}
}
