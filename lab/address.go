package lab

import (
	"math/rand/v2"
	"net"
	"strconv"
)

// FreeAddress returns an address of host with a TCP port that nobody listens
// on. The port is below those that the system gives to outgoing connections: a
// client that dials a stopped server on one of those can reach itself.
func FreeAddress(host string) string {
	const low, high = 20000, 32000
	for range 100 {
		address := net.JoinHostPort(host, strconv.Itoa(low+rand.IntN(high-low)))
		if l, err := net.Listen("tcp", address); err == nil {
			l.Close()
			return address
		}
	}
	return net.JoinHostPort(host, "0")
}
