package probe

import (
	"context"
	"fmt"
	"net"
	"time"
)

// Respond sends the probes that arrive on conn back to where they came from,
// until ctx ends or conn is closed, which is an error. Whatever else arrives is
// ignored. An answer is as long as its probe; one that would have to be
// fragmented is not sent, and it leaves from the address that was asked (both on
// Linux). The caller closes conn.
func Respond(ctx context.Context, conn net.PacketConn) error {
	if err := forbidFragments(conn); err != nil {
		return fmt.Errorf("respond to probes on %s: %w", conn.LocalAddr(), err)
	}
	conn, err := answering(conn)
	if err != nil {
		return fmt.Errorf("respond to probes: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { conn.SetReadDeadline(time.Now()) })
	defer stop()
	return readAll(ctx, conn, make([]byte, sizeMost), func(b []byte, from net.Addr) {
		if kind, _ := parsePacket(b); kind != request {
			return
		}
		b[kindAt] = answer
		conn.SetWriteDeadline(time.Now().Add(writeTimeout))
		_, _ = conn.WriteTo(b, from) // what cannot be answered is lost, and seen to be
	})
}
