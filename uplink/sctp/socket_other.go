//go:build !linux || 386

package sctp

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"time"
)

// socket is never made here.
type socket struct {
	file *os.File
	raw  syscall.RawConn
}

func openSocket(bool) (*socket, error) {
	return nil, fmt.Errorf("%w on %s/%s: kernel SCTP is for Linux, and not for programs of 386", ErrUnsupported, runtime.GOOS, runtime.GOARCH)
}

func (*socket) control(func(fd int) error) error                    { return ErrUnsupported }
func (*socket) set(int, []byte) error                               { return ErrUnsupported }
func (*socket) get(int, []byte) (int, error)                        { return 0, ErrUnsupported }
func (*socket) setBuffers(int, int) error                           { return ErrUnsupported }
func (*socket) bind([]netip.Addr, uint16, bool) error               { return ErrUnsupported }
func (*socket) reuse() error                                        { return ErrUnsupported }
func (*socket) listen() error                                       { return ErrUnsupported }
func (*socket) connect(context.Context, []netip.Addr, uint16) error { return ErrUnsupported }
func (*socket) accept() (*socket, error)                            { return nil, ErrUnsupported }
func (*socket) receive([]byte) (n int, note, last bool, err error) {
	return 0, false, false, ErrUnsupported
}
func (*socket) send([]byte) error    { return ErrUnsupported }
func (*socket) mayWrite() error      { return ErrUnsupported }
func (*socket) queued() (int, error) { return 0, ErrUnsupported }
func (*socket) close() error         { return ErrUnsupported }

func tick() time.Duration { return time.Second }
