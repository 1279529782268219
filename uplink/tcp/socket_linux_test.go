package tcp

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// F22: the kernel is told when to give up a peer that acknowledges nothing, and
// how little may wait in it.
func TestPrepare(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	plain, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	c := plain.(*net.TCPConn)
	congestion, err := prepare(c, 7*time.Second)
	if err != nil || congestion == "" {
		t.Fatalf("prepare: congestion control %q, %v", congestion, err)
	}
	limitUnsent(c, 5000)
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []struct {
		name      string
		opt, want int
	}{
		{"TCP_USER_TIMEOUT", unix.TCP_USER_TIMEOUT, 7000},
		{"TCP_NOTSENT_LOWAT", unix.TCP_NOTSENT_LOWAT, 5000},
		{"TCP_NODELAY", unix.TCP_NODELAY, 1},
		{"TCP_KEEPIDLE", unix.TCP_KEEPIDLE, 600},
	} {
		var got int
		var failed error
		if err := raw.Control(func(fd uintptr) { got, failed = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, o.opt) }); err != nil || failed != nil {
			t.Fatalf("%s: %v, %v", o.name, err, failed)
		}
		if got != o.want {
			t.Errorf("%s: got %d, want %d", o.name, got, o.want)
		}
	}
}

// What waits in the socket stays near the limit while the peer takes nothing,
// however the kernel joins small writes.
func TestUnsentStaysNearLimit(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	plain, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	m := &meter{TCPConn: plain.(*net.TCPConn)}
	defer m.Close()
	const limit, piece = 4000, 1000
	limitUnsent(m.TCPConn, limit)
	m.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
	for err == nil {
		_, err = m.Write(make([]byte, piece))
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("write to a peer that reads nothing: %v", err)
	}
	raw, err := m.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) {
		unsent, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQNSD)
		if err != nil || unsent > limit+piece {
			t.Errorf("%d bytes unsent, %v, want at most %d and a write", unsent, err, limit)
		}
	})
}

// F19: a path's packet size bounds the segments of both directions.
func TestMTU(t *testing.T) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	opt := Options{Address: ln.Addr().String(), MTU: 1280}
	host, port, err := net.SplitHostPort(opt.Address)
	if err != nil {
		t.Fatal(err)
	}
	near, err := connect(t.Context(), opt, host, port)
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	far, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	for _, c := range []net.Conn{near, far} {
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		raw.Control(func(fd uintptr) {
			got, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG)
			if err != nil || got < 1200 || got > 1240 {
				t.Errorf("largest segment: got %d, %v, want what fits into 1280 bytes", got, err)
			}
		})
	}
}
