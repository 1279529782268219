package flow

import (
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func setCongestion(fd uintptr, name string) error {
	if err := unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, name); err != nil {
		return fmt.Errorf("set congestion control %s: %w; is the module tcp_%s loaded?", name, err, name)
	}
	return nil
}

// tcpCounters reads TCP_INFO. Of Multipath TCP the kernel tells nothing by it.
func tcpCounters(c net.Conn) counters {
	s, ok := c.(syscall.Conn)
	if !ok {
		return counters{}
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return counters{}
	}
	var info *unix.TCPInfo
	if e := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) }); e != nil || err != nil {
		return counters{}
	}
	return counters{
		sent: uint64(info.Data_segs_out), resent: uint64(info.Total_retrans),
		rtt: time.Duration(info.Rtt) * time.Microsecond,
	}
}
