package paths

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// wakeRetry is how long reading waits after an error that may repeat itself.
const wakeRetry = 100 * time.Millisecond

// wake tells that links, addresses, routes or rules may have changed. What the
// kernel says is not looked at: it may have dropped some of it.
type wake struct {
	woken chan struct{}
	file  *os.File
	done  chan struct{} // closed when read has returned
}

// newWake subscribes, so that nothing is missed that changes from then on.
func newWake() (*wake, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("bind", err)
	}
	for _, group := range []int{
		unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
		unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE, // should somebody remove ours
	} {
		if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, group); err != nil {
			unix.Close(fd)
			return nil, os.NewSyscallError("setsockopt", err)
		}
	}
	w := &wake{woken: make(chan struct{}, 1), file: os.NewFile(uintptr(fd), "netlink"), done: make(chan struct{})}
	go w.read()
	return w, nil
}

// close ends the subscription and waits for its goroutine.
func (w *wake) close() {
	w.file.Close()
	<-w.done
}

func (w *wake) read() {
	defer close(w.done)
	b := make([]byte, 4096) // a message that is longer is cut, which does not matter
	for {
		_, err := w.file.Read(b)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		select {
		case w.woken <- struct{}{}:
		default: // not yet taken
		}
		if err != nil && !errors.Is(err, unix.ENOBUFS) { // the latter: it came too fast, some is lost
			<-time.After(wakeRetry)
		}
	}
}
