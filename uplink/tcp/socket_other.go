//go:build !linux

package tcp

import (
	"net"
	"time"
)

// tune has nothing to set here: dead peers are noticed by the session's own
// deadlines, later than with Linux.
func tune(*net.TCPConn, time.Duration) (congestion string, err error) { return "", nil }

func limitUnsent(*net.TCPConn, int) {}

func awaitRoom(*net.TCPConn) error { return nil }

func measure(*net.TCPConn) (rtt time.Duration, retransmits uint64) { return 0, 0 }
