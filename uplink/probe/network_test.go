package probe

import (
	"net"
	"net/netip"
	"os"
	"sync"
	"time"
)

// network is one path of packets, in memory, between a near and a far socket.
type network struct {
	near, far *socket
}

type packet struct {
	b    []byte
	from net.Addr
}

// fate says when packet number n (from 0) of a direction arrives, and whether.
type fate func(n int, b []byte) (delay time.Duration, arrives bool)

func newNetwork(out, back fate) *network {
	n := &network{
		near: &socket{addr: net.UDPAddrFromAddrPort(netip.MustParseAddrPort("198.18.0.1:1")), out: out, in: make(chan packet, 64)},
		far:  &socket{addr: net.UDPAddrFromAddrPort(netip.MustParseAddrPort("198.18.0.2:2")), out: back, in: make(chan packet, 64)},
	}
	n.near.deadline, n.far.deadline = make(chan struct{}), make(chan struct{})
	n.near.peer, n.far.peer = n.far, n.near
	return n
}

var swallow fate = func(int, []byte) (time.Duration, bool) { return 0, false }

func delay(d time.Duration) fate {
	return func(int, []byte) (time.Duration, bool) { return d, true }
}

// socket is a net.PacketConn whose read deadline, once set, has always passed.
type socket struct {
	addr     net.Addr
	peer     *socket
	in       chan packet
	deadline chan struct{}
	once     sync.Once

	mu   sync.Mutex // guards what follows
	out  fate
	sent int
	fail error // of every write, if set
}

func (s *socket) ReadFrom(b []byte) (int, net.Addr, error) {
	select {
	case p := <-s.in:
		return copy(b, p.b), p.from, nil
	case <-s.deadline:
		return 0, nil, os.ErrDeadlineExceeded
	}
}

func (s *socket) WriteTo(b []byte, _ net.Addr) (int, error) {
	s.mu.Lock()
	n := s.sent
	s.sent++
	fail, out := s.fail, s.out
	s.mu.Unlock()
	if fail != nil {
		return 0, fail
	}
	if after, arrives := out(n, b); arrives {
		p := packet{append([]byte(nil), b...), s.addr}
		time.AfterFunc(after, func() { s.peer.in <- p })
	}
	return len(b), nil
}

func (s *socket) refuse(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

// become changes the fate of what is written from now on.
func (s *socket) become(out fate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out = out
}

func (s *socket) LocalAddr() net.Addr              { return s.addr }
func (s *socket) Close() error                     { return nil }
func (s *socket) SetDeadline(time.Time) error      { return nil }
func (s *socket) SetWriteDeadline(time.Time) error { return nil }
func (s *socket) SetReadDeadline(t time.Time) error {
	s.once.Do(func() { close(s.deadline) })
	return nil
}

var _ net.PacketConn = (*socket)(nil)
