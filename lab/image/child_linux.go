package image

import "syscall"

// attributes end QEMU when the lab dies, however that happens.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
