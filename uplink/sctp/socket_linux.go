//go:build !386

package sctp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	lib "github.com/ishidawataru/sctp"
	"golang.org/x/sys/unix"
)

const (
	solSCTP         = unix.IPPROTO_SCTP
	msgNotification = 0x8000
	memQueued       = 5 // SK_MEMINFO_WMEM_QUEUED
	backlog         = 1024
)

// socket is a one-to-one SCTP socket that does not block, under the runtime's
// poller. Of the library only what puts addresses into the kernel's form is
// used: its own connections block a thread each, and Close does not wake them.
type socket struct {
	file   *os.File
	raw    syscall.RawConn
	closed atomic.Bool
}

// openSocket makes a socket, of IPv4 alone or of both. The kernel loads its
// module by itself, if it has one and a modprobe.
func openSocket(ipv6 bool) (*socket, error) {
	family := unix.AF_INET
	if ipv6 {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_SCTP)
	switch {
	case errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.ESOCKTNOSUPPORT), errors.Is(err, unix.EAFNOSUPPORT):
		return nil, fmt.Errorf("%w: this kernel has none (%w): load its module \"sctp\", or build it in", ErrUnsupported, err)
	case err != nil:
		return nil, fmt.Errorf("open sctp socket: %w", err)
	}
	return newSocket(fd)
}

func newSocket(fd int) (*socket, error) {
	s := &socket{file: os.NewFile(uintptr(fd), "sctp")}
	var err error
	if s.raw, err = s.file.SyscallConn(); err != nil {
		s.file.Close()
		return nil, fmt.Errorf("open sctp socket: %w", err)
	}
	return s, nil
}

// control calls f with the descriptor, which stays open meanwhile.
func (s *socket) control(f func(fd int) error) error {
	var failed error
	if err := s.raw.Control(func(fd uintptr) { failed = f(int(fd)) }); err != nil {
		return s.explain(err)
	}
	return failed
}

// explain replaces the error of a closed file by that of a closed connection.
func (s *socket) explain(err error) error {
	if err != nil && s.closed.Load() {
		return net.ErrClosed
	}
	return err
}

// set sets an option of SOL_SCTP.
func (s *socket) set(option int, value []byte) error {
	return s.control(func(fd int) error {
		return unix.SetsockoptString(fd, solSCTP, option, string(value))
	})
}

// get reads an option of SOL_SCTP over value, which may tell what is asked for,
// and returns how many bytes the kernel wrote.
func (s *socket) get(option int, value []byte) (n int, err error) {
	err = s.control(func(fd int) error {
		size := uint32(len(value))
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), solSCTP, uintptr(option),
			uintptr(unsafe.Pointer(unsafe.SliceData(value))), uintptr(unsafe.Pointer(&size)), 0)
		if errno != 0 {
			return errno
		}
		n = int(size)
		return nil
	})
	return n, err
}

// setBuffers sets how many bytes the kernel may hold. The system's limit, small
// for a path with much in flight, binds only without CAP_NET_ADMIN.
func (s *socket) setBuffers(send, receive int) error {
	return s.control(func(fd int) error {
		for _, b := range []struct{ force, ask, size int }{
			{unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, send},
			{unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, receive},
		} {
			if unix.SetsockoptInt(fd, unix.SOL_SOCKET, b.force, b.size) == nil {
				continue
			}
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, b.ask, b.size); err != nil {
				return fmt.Errorf("set socket buffer of %d bytes: %w", b.size, err)
			}
		}
		return nil
	})
}

// bind adds addresses to the socket, or removes them.
func (s *socket) bind(addresses []netip.Addr, port uint16, add bool) error {
	flags := lib.SCTP_BINDX_REM_ADDR
	if add {
		flags = lib.SCTP_BINDX_ADD_ADDR
	}
	return s.control(func(fd int) error { return lib.SCTPBind(fd, libAddr(addresses, port), flags) })
}

// reuse lets a listener have the port of associations that are still ending.
func (s *socket) reuse() error {
	return s.control(func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
}

func (s *socket) listen() error {
	err := s.control(func(fd int) error { return unix.Listen(fd, backlog) })
	if errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("%w: the kernel lacks the hash that signs SCTP's cookies: load hmac, md5 or sha1", err)
	}
	return err
}

// connect sets up the association and returns when it is established, ctx ends,
// or the kernel gives up.
func (s *socket) connect(ctx context.Context, addresses []netip.Addr, port uint16) error {
	stop := context.AfterFunc(ctx, func() { s.file.SetWriteDeadline(time.Unix(1, 0)) })
	err := s.control(func(fd int) error {
		_, err := lib.SCTPConnect(fd, libAddr(addresses, port))
		return err
	})
	if errors.Is(err, unix.EINPROGRESS) {
		var failed error
		err = s.raw.Write(func(fd uintptr) bool {
			// The state is asked each time: the edge may have come before the
			// poller looked.
			var code int
			if code, failed = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR); failed == nil && code != 0 {
				failed = unix.Errno(code)
			}
			if failed != nil {
				return true
			}
			st, err := s.status() // EINVAL before the peer has answered
			return err == nil && st.state >= assocEstablished
		})
		if err == nil {
			err = failed
		}
	}
	if !stop() { // the deadline is or will be set: the socket is spoilt
		return context.Cause(ctx)
	}
	return s.explain(err)
}

// accept waits for the next association.
func (s *socket) accept() (*socket, error) {
	var fd int
	var failed error
	err := s.raw.Read(func(listening uintptr) bool {
		for {
			fd, _, failed = unix.Accept4(int(listening), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			if failed != unix.EINTR {
				return failed != unix.EAGAIN
			}
		}
	})
	if err != nil {
		return nil, s.explain(err)
	}
	if failed != nil {
		return nil, failed
	}
	return newSocket(fd)
}

// receive waits for a message, or the next part of one that is longer than p.
// It is a notification if note is set, and at its end if last is. After the
// peer's last message all are zero.
func (s *socket) receive(p []byte) (n int, note, last bool, err error) {
	var errno syscall.Errno
	var flags int32
	err = s.raw.Read(func(fd uintptr) bool {
		n, flags, errno = receiveNow(int(fd), p)
		return errno != unix.EAGAIN
	})
	switch {
	case err != nil:
		return 0, false, false, s.explain(err)
	case errno != 0:
		return 0, false, false, os.NewSyscallError("recvmsg", errno)
	}
	return n, flags&msgNotification != 0, flags&unix.MSG_EOR != 0, nil
}

// receiveNow is recvmsg without the sender's address, for which the package unix
// would ask the kernel two more questions a message.
func receiveNow(fd int, p []byte) (n int, flags int32, errno syscall.Errno) {
	v := unix.Iovec{Base: unsafe.SliceData(p)}
	v.SetLen(len(p))
	h := unix.Msghdr{Iov: &v}
	h.SetIovlen(1)
	for {
		r, _, e := unix.Syscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&h)), unix.MSG_DONTWAIT)
		if e != unix.EINTR {
			return int(r), h.Flags, e
		}
	}
}

// send waits until the socket has room, and hands over one message, which the
// kernel takes whole or not at all.
func (s *socket) send(p []byte) error {
	var failed error
	err := s.raw.Write(func(fd uintptr) bool {
		for {
			_, failed = unix.SendmsgN(int(fd), p, nil, nil, unix.MSG_NOSIGNAL)
			if failed != unix.EINTR {
				return failed != unix.EAGAIN
			}
		}
	})
	if err != nil {
		return s.explain(err)
	}
	return os.NewSyscallError("sendmsg", failed)
}

// mayWrite is an error once the socket is closed or the write deadline is past.
func (s *socket) mayWrite() error {
	return s.explain(s.raw.Write(func(uintptr) bool { return true }))
}

// queued is how many bytes of memory hold what was sent and not acknowledged yet.
func (s *socket) queued() (n int, err error) {
	err = s.control(func(fd int) error {
		var memory [9]uint32
		size := uint32(unsafe.Sizeof(memory))
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
			uintptr(unsafe.Pointer(&memory)), uintptr(unsafe.Pointer(&size)), 0)
		if errno != 0 {
			return errno
		}
		n = int(memory[memQueued])
		return nil
	})
	return n, err
}

// close ends the association. The kernel delivers what it has; but if the
// program has not read everything it aborts instead, so what is there is read.
func (s *socket) close() error {
	if s.closed.Swap(true) {
		return net.ErrClosed
	}
	_ = s.raw.Control(func(fd uintptr) {
		scratch := make([]byte, 4096)
		for range closeReads {
			if n, _, errno := receiveNow(int(fd), scratch); n <= 0 || errno != 0 {
				return
			}
		}
	})
	return s.file.Close()
}

// tick is the length of a jiffy, which is the unit of a path's round trip.
func tick() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &t); err != nil {
		return 4 * time.Millisecond // HZ of most distributions is 250
	}
	return time.Duration(t.Nano())
}

func libAddr(addresses []netip.Addr, port uint16) *lib.SCTPAddr {
	a := &lib.SCTPAddr{Port: int(port)}
	for _, ip := range addresses {
		a.IPAddrs = append(a.IPAddrs, net.IPAddr{IP: ip.Unmap().AsSlice(), Zone: ip.Zone()})
	}
	return a
}
