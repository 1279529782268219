//go:build !linux

package image

import "syscall"

func attributes() *syscall.SysProcAttr { return nil }
