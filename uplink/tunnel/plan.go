package tunnel

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"sluice/uplink/wire"
)

// plan divides the inner network: a quarter for each uplink number (0 to 3), in
// each the collector first and then the gateways by their numbers. So a gateway's
// tunnels lead to different addresses of the collector, and the route that comes
// with the collector's address in a quarter has the right source by itself.
//
//	10.213.0.0/16: 10.213.0.1 is the collector's and 10.213.0.2 gateway 0's first
//	uplink, 10.213.64.1 and 10.213.64.2 their second.
type plan struct{ network netip.Prefix }

// reserved addresses of each quarter: the network's, the collector's and, of the
// last quarter, the broadcast address.
const reserved = 3

func newPlan(network netip.Prefix) (plan, error) {
	if !network.IsValid() || !network.Addr().Is4() || network.Bits() < 8 || network.Bits() > 28 {
		return plan{}, fmt.Errorf("tunnel network %v: use an IPv4 network of 8 to 28 bits that nothing else uses, such as 10.213.0.0/16", network)
	}
	return plan{network.Masked()}, nil
}

// gateways is how many gateways the network has room for.
func (p plan) gateways() int { return p.size() - reserved }

// size is how many addresses a quarter has.
func (p plan) size() int { return 1 << (32 - p.network.Bits()) / wire.MaxTunnels }

// at is an address of a quarter.
func (p plan) at(uplink, offset int) netip.Addr {
	base := binary.BigEndian.Uint32(p.network.Addr().AsSlice())
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], base+uint32(uplink*p.size()+offset))
	return netip.AddrFrom4(b)
}

// collector is the collector's address in an uplink number's quarter, with the
// quarter's length.
func (p plan) collector(uplink int) netip.Prefix {
	return netip.PrefixFrom(p.at(uplink, 1), p.network.Bits()+2)
}

// gateway is a gateway's address for one of its uplinks.
func (p plan) gateway(number, uplink int) netip.Prefix {
	return netip.PrefixFrom(p.at(uplink, 2+number), 32)
}
