package guest

import "syscall"

// Attributes end QEMU when the lab dies, however that happens.
func Attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
