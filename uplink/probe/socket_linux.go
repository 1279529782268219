package probe

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// forbidFragments sets the "don't fragment" bit on what the socket sends, and has
// the kernel ignore what it has learnt of the path's MTU, which is what is being
// measured. Packets above the interface's MTU are refused with EMSGSIZE. Sockets
// that are not the kernel's are left alone.
func forbidFragments(conn net.PacketConn) error {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var set4, set6 error
	err = raw.Control(func(fd uintptr) {
		// A socket for both families needs both options, one for IPv4 has only one.
		set4 = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
		set6 = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE)
	})
	if err == nil && set4 != nil && set6 != nil {
		err = fmt.Errorf("forbid fragments: %w", errors.Join(set4, set6))
	}
	return err
}
