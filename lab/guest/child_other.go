//go:build !linux

package guest

import "syscall"

// Attributes end QEMU when the lab dies, where the system can.
func Attributes() *syscall.SysProcAttr { return nil }
