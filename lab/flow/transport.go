package flow

import (
	"fmt"
	"strings"
)

// The protocols of a Transport.
const (
	TCP   = "tcp"
	MPTCP = "mptcp"
	SCTP  = "sctp"
)

// Transport is how a flow is carried, all of it by the kernel.
type Transport struct {
	Protocol    string // TCP, MPTCP or SCTP
	Congestion  string // of TCP: "cubic", "bbr"; empty for the kernel's default
	Connections int    // how many at once, at least 1
	Tuned       bool   // of SCTP: with the appliance's timers instead of the kernel's
}

// String names the transport as the tables do: "tcp bbr, 4 connections".
func (t Transport) String() string {
	var b strings.Builder
	b.WriteString(t.Protocol)
	switch {
	case t.Congestion != "":
		b.WriteString(" " + t.Congestion)
	case t.Tuned:
		b.WriteString(" tuned")
	case t.Protocol == SCTP:
		b.WriteString(" default")
	}
	if t.Connections > 1 {
		unit := "connections"
		if t.Protocol == SCTP {
			unit = "associations"
		}
		fmt.Fprintf(&b, ", %d %s", t.Connections, unit)
	}
	return b.String()
}
