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
	err := setBoth(c,
		option{unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE},
		option{unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE})
	if err != nil {
		return fmt.Errorf("forbid fragments: %w", err)
	}
	return nil
}

type option struct{ level, name, value int }

// setBoth sets an option for IPv4 and its like for IPv6. A socket for both families
// has both, one for IPv4 only the first.
func setBoth(c syscall.Conn, v4, v6 option) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var set4, set6 error
	err = raw.Control(func(fd uintptr) {
		set4 = unix.SetsockoptInt(int(fd), v4.level, v4.name, v4.value)
		set6 = unix.SetsockoptInt(int(fd), v6.level, v6.name, v6.value)
	})
	if err == nil && set4 != nil && set6 != nil {
		err = errors.Join(set4, set6)
	}
	return err
}

// answering returns the socket with a WriteTo that answers the packet read last
// from the address that this came to. Left to itself, the kernel takes the address
// of the interface that the answer leaves by, and where the asked one is another
// (of a second uplink, or one that moves between machines), NATs and firewalls on
// the way drop what they have not seen asked for.
func answering(conn net.PacketConn) (net.PacketConn, error) {
	c, ok := conn.(*net.UDPConn)
	if !ok {
		return conn, nil
	}
	err := setBoth(c, option{unix.IPPROTO_IP, unix.IP_PKTINFO, 1}, option{unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1})
	if err != nil {
		return nil, fmt.Errorf("learn which address is asked: %w", err)
	}
	return &answerer{UDPConn: c}, nil
}

// answerer is for one goroutine.
type answerer struct {
	*net.UDPConn
	control [256]byte // that came with the packet read last
	reply   []byte    // control that its answer needs
}

func (a *answerer) ReadFrom(b []byte) (int, net.Addr, error) {
	n, c, _, from, err := a.ReadMsgUDP(b, a.control[:])
	if err != nil {
		return n, nil, err
	}
	a.reply = replyControl(a.control[:c])
	return n, from, nil
}

func (a *answerer) WriteTo(b []byte, to net.Addr) (int, error) {
	n, _, err := a.WriteMsgUDP(b, a.reply, to.(*net.UDPAddr))
	return n, err
}

// replyControl turns the address that a packet came to, as ip(7) and ipv6(7) tell
// it, into the one that its answer leaves from, by whichever interface. It is nil
// if that is not known.
func replyControl(control []byte) []byte {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		switch {
		case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO && len(m.Data) >= unix.SizeofInet4Pktinfo:
			return unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: [4]byte(m.Data[4:])})
		case m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= unix.SizeofInet6Pktinfo:
			return unix.PktInfo6(&unix.Inet6Pktinfo{Addr: [16]byte(m.Data)})
		}
	}
	return nil
}
