//go:build !linux

package flow

import (
	"errors"
	"net"
)

func setCongestion(uintptr, string) error {
	return errors.New("set congestion control: only Linux lets a socket choose")
}

func tcpCounters(net.Conn) counters { return counters{} }
