//go:build !linux

package tcp

import (
	"net"
	"syscall"
	"time"

	"sluice/uplink"
)

// tune has nothing to set here: dead peers are noticed by the session's own
// deadlines, later than with Linux.
func tune(*net.TCPConn, time.Duration) (congestion string, err error) { return "", nil }

func limitSegments(syscall.RawConn, int) error { return nil }

func limitUnsent(*net.TCPConn, int) {}

func awaitRoom(*net.TCPConn) error { return nil }

func measure(_ *net.TCPConn, info *uplink.Info) { info.Unacked = -1 }
