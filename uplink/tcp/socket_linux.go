package tcp

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sluice/uplink"
)

// tune sets what only Linux has: TCP_USER_TIMEOUT (RFC 5482), and BBR where the
// kernel has it, since loss on radio links says little about congestion.
func tune(c *net.TCPConn, userTimeout time.Duration) (congestion string, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return "", err
	}
	var set error
	err = raw.Control(func(fd uintptr) {
		s := int(fd)
		if set = unix.SetsockoptInt(s, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds())); set != nil {
			set = fmt.Errorf("set TCP_USER_TIMEOUT: %w", set)
			return
		}
		// A kernel without BBR refuses, and keeps its own; which one, Info tells.
		_ = unix.SetsockoptString(s, unix.IPPROTO_TCP, unix.TCP_CONGESTION, "bbr")
		congestion, set = unix.GetsockoptString(s, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	})
	if err == nil {
		err = set
	}
	return congestion, err
}

// limitSegments sets the largest segment for both directions, before the
// connection is opened.
func limitSegments(c syscall.RawConn, bytes int) error {
	var set error
	err := c.Control(func(fd uintptr) {
		if set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, bytes); set != nil {
			set = fmt.Errorf("set TCP_MAXSEG: %w", set)
		}
	})
	return errors.Join(err, set)
}

// limitUnsent fails only on a closed connection, where it does not matter.
func limitUnsent(c *net.TCPConn, bytes int) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, bytes)
	})
}

// awaitRoom blocks until the socket has less unsent than its limit. A write alone
// heeds the limit only when it begins a new buffer, of up to 64 KB; poll heeds it
// always, and by asking has the kernel wake the runtime's poller.
func awaitRoom(c *net.TCPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Write(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 0)
		return n != 0 || err != nil && err != unix.EINTR
	})
}

// measure asks the kernel for what it knows of a connection.
func measure(c *net.TCPConn, info *uplink.Info) {
	info.Unacked = -1
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { // fails on a closed connection, which measures nothing
		t, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			return
		}
		info.RTT = time.Duration(t.Rtt) * time.Microsecond
		// The kernel counts a retransmission as sent once more.
		info.Resent = uint64(t.Total_retrans)
		info.Sent = uint64(t.Data_segs_out) - min(uint64(t.Data_segs_out), info.Resent)
		info.Packet, info.Window = int(t.Snd_mss), int(t.Snd_cwnd*t.Snd_mss)
		if n, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); err == nil {
			// What came after a loss has arrived, though it is not acknowledged in
			// order (RFC 2018).
			info.Unacked = max(0, n-int(t.Sacked)*int(t.Snd_mss))
		}
	})
}
