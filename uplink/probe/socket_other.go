//go:build !linux

package probe

import "net"

// forbidFragments has nothing to set here: sizes are not measured, only loss and
// round trips.
func forbidFragments(net.PacketConn) error { return nil }
