//go:build !linux

package guest

import "syscall"

func attributes() *syscall.SysProcAttr { return nil }
