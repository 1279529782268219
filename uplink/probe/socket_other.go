//go:build !linux

package probe

import "net"

// forbidFragments has nothing to set here: sizes are not measured, only loss and
// round trips.
func forbidFragments(net.PacketConn) error { return nil }

// answering leaves it to the system which address an answer leaves from.
func answering(conn net.PacketConn) (net.PacketConn, error) { return conn, nil }
