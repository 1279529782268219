package topology

import "fmt"

// Protocol is an IP protocol number.
type Protocol uint8

// The protocols that a middlebox may drop.
const (
	ICMP Protocol = 1
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132
)

func (p Protocol) String() string {
	switch p {
	case ICMP:
		return "ICMP"
	case TCP:
		return "TCP"
	case UDP:
		return "UDP"
	case SCTP:
		return "SCTP"
	}
	return fmt.Sprintf("protocol %d", uint8(p))
}
