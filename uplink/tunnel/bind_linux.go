package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
)

// bind is the sockets of a device that this process drives. Unlike WireGuard's
// own, it lets routers fragment, as the kernel's WireGuard does (F19), holds
// little memory, and at a gateway never clings to a source address, so that a
// renewed one is used at once (F21).
type bind struct {
	many bool // answer from the address that was asked, since a peer knows no other

	mu   sync.Mutex // guards what follows
	v4   *net.UDPConn
	v6   *net.UDPConn
	mark uint32
}

var _ conn.Bind = (*bind)(nil)

// endpoint is where a peer is.
type endpoint struct {
	remote netip.AddrPort
	local  netip.Addr // that it sent to; not valid if the route decides
}

var _ conn.Endpoint = (*endpoint)(nil)

// portTries bounds how often a free port is looked for that both families have.
const portTries = 16

// Open implements conn.Bind.
func (b *bind) Open(port uint16) ([]conn.ReceiveFunc, uint16, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.v4 != nil || b.v6 != nil {
		return nil, 0, conn.ErrBindAlreadyOpen
	}
	var err error
	for range portTries {
		if err = b.open(port); port != 0 || !errors.Is(err, unix.EADDRINUSE) {
			break
		}
	}
	if err != nil {
		return nil, 0, err
	}
	var receive []conn.ReceiveFunc
	for _, c := range []*net.UDPConn{b.v4, b.v6} {
		if c != nil {
			receive = append(receive, b.receiver(c))
			port = uint16(c.LocalAddr().(*net.UDPAddr).Port)
		}
	}
	return receive, port, nil
}

// open opens both sockets, on one port, or IPv4's alone where there is no IPv6.
func (b *bind) open(port uint16) error {
	v4, err := b.listen("udp4", port)
	if err != nil {
		return err
	}
	v6, err := b.listen("udp6", uint16(v4.LocalAddr().(*net.UDPAddr).Port))
	if err != nil && !errors.Is(err, unix.EAFNOSUPPORT) && !errors.Is(err, unix.EADDRNOTAVAIL) {
		v4.Close()
		return err
	}
	b.v4, b.v6 = v4, v6
	return nil
}

func (b *bind) listen(network string, port uint16) (*net.UDPConn, error) {
	config := net.ListenConfig{Control: func(network, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) { failed = b.prepare(int(fd), network == "udp6") })
		return errors.Join(err, failed)
	}}
	c, err := config.ListenPacket(context.Background(), network, ":"+strconv.Itoa(int(port)))
	if err != nil {
		return nil, err
	}
	return c.(*net.UDPConn), nil
}

func (b *bind) prepare(fd int, six bool) error {
	level, discover, never, info := unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT, unix.IP_PKTINFO
	if six {
		level, discover, never, info = unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DONT, unix.IPV6_RECVPKTINFO
	}
	if err := unix.SetsockoptInt(fd, level, discover, never); err != nil {
		return fmt.Errorf("allow fragments: %w", err)
	}
	if b.mark != 0 {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, int(b.mark)); err != nil {
			return fmt.Errorf("mark packets: %w", err)
		}
	}
	if b.many {
		if err := unix.SetsockoptInt(fd, level, info, 1); err != nil {
			return fmt.Errorf("ask for the address a packet came to: %w", err)
		}
	}
	return nil
}

// receiver reads one packet a call.
func (b *bind) receiver(c *net.UDPConn) conn.ReceiveFunc {
	var oob []byte
	if b.many {
		oob = make([]byte, 128)
	}
	return func(packets [][]byte, sizes []int, eps []conn.Endpoint) (int, error) {
		n, oobn, _, from, err := c.ReadMsgUDPAddrPort(packets[0], oob)
		if err != nil {
			return 0, err
		}
		e := &endpoint{remote: netip.AddrPortFrom(from.Addr().Unmap(), from.Port())}
		if b.many {
			e.local = askedAddress(oob[:oobn])
		}
		sizes[0], eps[0] = n, e
		return 1, nil
	}
}

// askedAddress is the address a packet came to.
func askedAddress(oob []byte) netip.Addr {
	var four ipv4.ControlMessage
	if four.Parse(oob) == nil && four.Dst != nil {
		a, _ := netip.AddrFromSlice(four.Dst)
		return a.Unmap()
	}
	var six ipv6.ControlMessage
	if six.Parse(oob) == nil && six.Dst != nil {
		a, _ := netip.AddrFromSlice(six.Dst)
		return a
	}
	return netip.Addr{}
}

// Send implements conn.Bind.
func (b *bind) Send(packets [][]byte, ep conn.Endpoint) error {
	e, ok := ep.(*endpoint)
	if !ok {
		return conn.ErrWrongEndpointType
	}
	b.mu.Lock()
	c := b.v4
	if e.remote.Addr().Is6() {
		c = b.v6
	}
	b.mu.Unlock()
	if c == nil {
		return unix.EAFNOSUPPORT
	}
	oob := e.from()
	for _, p := range packets {
		if _, _, err := c.WriteMsgUDPAddrPort(p, oob, e.remote); err != nil {
			return err
		}
	}
	return nil
}

// from has the kernel send from the address that was asked.
func (e *endpoint) from() []byte {
	switch {
	case !e.local.IsValid():
		return nil
	case e.local.Is4():
		return (&ipv4.ControlMessage{Src: e.local.AsSlice()}).Marshal()
	}
	return (&ipv6.ControlMessage{Src: e.local.AsSlice()}).Marshal()
}

// SetMark implements conn.Bind.
func (b *bind) SetMark(mark uint32) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mark = mark
	for _, c := range []*net.UDPConn{b.v4, b.v6} {
		if c == nil {
			continue
		}
		raw, err := c.SyscallConn()
		if err != nil {
			return err
		}
		var failed error
		if err := raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, int(mark)) }); err != nil {
			return err
		}
		if failed != nil {
			return fmt.Errorf("mark packets: %w", failed)
		}
	}
	return nil
}

// Close implements conn.Bind.
func (b *bind) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var errs []error
	for _, c := range []*net.UDPConn{b.v4, b.v6} {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	b.v4, b.v6 = nil, nil
	return errors.Join(errs...)
}

// ParseEndpoint implements conn.Bind.
func (*bind) ParseEndpoint(s string) (conn.Endpoint, error) {
	a, err := netip.ParseAddrPort(s)
	if err != nil {
		return nil, err
	}
	return &endpoint{remote: a}, nil
}

// BatchSize implements conn.Bind.
func (*bind) BatchSize() int { return 1 }

// ClearSrc implements conn.Endpoint. An endpoint never changes: where local is
// wrong, the peer's next packet brings another.
func (*endpoint) ClearSrc() {}

// SrcToString implements conn.Endpoint.
func (e *endpoint) SrcToString() string { return e.local.String() }

// DstToString implements conn.Endpoint.
func (e *endpoint) DstToString() string { return e.remote.String() }

// DstToBytes implements conn.Endpoint.
func (e *endpoint) DstToBytes() []byte {
	b, _ := e.remote.MarshalBinary() // never fails
	return b
}

// DstIP implements conn.Endpoint.
func (e *endpoint) DstIP() netip.Addr { return e.remote.Addr() }

// SrcIP implements conn.Endpoint.
func (e *endpoint) SrcIP() netip.Addr { return e.local }
