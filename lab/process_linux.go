package lab

import "syscall"

// processAttributes put a child in a group of its own and end it when the lab
// dies, however that happens.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
