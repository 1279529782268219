package flow

import (
	"context"
	"net"
	"syscall"
)

func listenTCP(ctx context.Context, o Options) (net.Listener, error) {
	l := net.ListenConfig{Control: control(o.Congestion), KeepAlive: -1}
	l.SetMultipathTCP(o.Protocol == MPTCP)
	return l.Listen(ctx, "tcp", o.Remote[0].String())
}

func dialTCP(ctx context.Context, o Options) (net.Conn, error) {
	d := net.Dialer{KeepAlive: -1}
	if len(o.Local) > 0 {
		d.LocalAddr = &net.TCPAddr{IP: o.Local[0].AsSlice()}
	}
	d.Control = control(o.Congestion)
	d.SetMultipathTCP(o.Protocol == MPTCP)
	return d.DialContext(ctx, "tcp", o.Remote[0].String())
}

// control makes new sockets use a congestion control; the empty name leaves the
// kernel's own.
func control(congestion string) func(network, address string, c syscall.RawConn) error {
	if congestion == "" {
		return nil
	}
	return func(_, _ string, c syscall.RawConn) error {
		var err error
		if e := c.Control(func(fd uintptr) { err = setCongestion(fd, congestion) }); e != nil {
			return e
		}
		return err
	}
}
