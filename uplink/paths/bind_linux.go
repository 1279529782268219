package paths

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// bind ties a socket to an interface and marks what it sends. The mark alone would
// do for routes; the interface also keeps answers that came by another away, and
// tells two uplinks apart that have the same address.
func bind(fd uintptr, device string, mark uint32) error {
	if err := unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, int(mark)); err != nil {
		if errors.Is(err, unix.EPERM) {
			return fmt.Errorf("set SO_MARK: %w: run as root, or with CAP_NET_ADMIN", err)
		}
		return fmt.Errorf("set SO_MARK: %w", err)
	}
	if err := unix.BindToDevice(int(fd), device); err != nil {
		return fmt.Errorf("set SO_BINDTODEVICE: %w", err)
	}
	return nil
}
