package wire

import (
	"encoding/binary"
	"net/netip"
)

const (
	// MaxTunnels bounds the uplinks of one gateway.
	MaxTunnels = 4
	// MaxInterface bounds an uplink's name, in bytes, as Linux bounds the name of
	// an interface.
	MaxInterface = 15
)

// TunnelKey is a public key of WireGuard, a point on Curve25519 (RFC 7748).
type TunnelKey [32]byte

// TunnelRequest is sent instead of a Hello and asks for a tunnel's addresses for
// each of a gateway's uplinks. A TunnelReply or a Reject answers it, and the
// carrier ends.
type TunnelRequest struct {
	Gateway string // as in its certificate
	Uplinks []TunnelUplink
}

// TunnelUplink is an uplink that wants a tunnel.
type TunnelUplink struct {
	Name string // of the interface: "wwan0"
	Key  TunnelKey
}

// TunnelReply holds the collector's end of the tunnels.
type TunnelReply struct {
	Key     TunnelKey     // the collector's
	Port    uint16        // UDP, at the address that the gateway reached
	Tunnels []TunnelLease // one for each uplink of the request, in its order
}

// TunnelLease is the inner addresses of one uplink's tunnel.
type TunnelLease struct {
	Local  netip.Prefix // the gateway's
	Remote netip.Addr   // the collector's, another one for each uplink
}

// AppendTunnelRequest appends r as a message.
func AppendTunnelRequest(dst []byte, r TunnelRequest) []byte {
	dst, start := begin(dst, TypeTunnelRequest)
	dst = appendText(dst, r.Gateway)
	dst = binary.AppendUvarint(dst, uint64(len(r.Uplinks)))
	for _, u := range r.Uplinks {
		dst = appendText(dst, u.Name)
		dst = append(dst, u.Key[:]...)
	}
	return finish(dst, start)
}

// AppendTunnelReply appends r as a message.
func AppendTunnelReply(dst []byte, r TunnelReply) []byte {
	dst, start := begin(dst, TypeTunnelReply)
	dst = append(dst, r.Key[:]...)
	dst = binary.AppendUvarint(dst, uint64(r.Port))
	dst = binary.AppendUvarint(dst, uint64(len(r.Tunnels)))
	for _, l := range r.Tunnels {
		dst = appendAddress(dst, l.Local.Addr())
		dst = binary.AppendUvarint(dst, uint64(l.Local.Bits()))
		dst = appendAddress(dst, l.Remote)
	}
	return finish(dst, start)
}

// appendAddress writes 4 or 16 bytes after their number.
func appendAddress(dst []byte, a netip.Addr) []byte {
	b := a.AsSlice()
	dst = binary.AppendUvarint(dst, uint64(len(b)))
	return append(dst, b...)
}

// DecodeTunnelRequest reads a TunnelRequest's body. Whether names repeat is for
// the collector to judge.
func DecodeTunnelRequest(body []byte) (TunnelRequest, error) {
	p := parser{b: body}
	r := TunnelRequest{Gateway: p.text()}
	for n := p.tunnels(); n > 0 && !p.bad; n-- {
		u := TunnelUplink{Name: p.text()}
		if len(u.Name) == 0 || len(u.Name) > MaxInterface {
			p.bad = true
		}
		copy(u.Key[:], p.take(len(u.Key)))
		r.Uplinks = append(r.Uplinks, u)
	}
	return r, p.err("tunnel request")
}

// DecodeTunnelReply reads a TunnelReply's body.
func DecodeTunnelReply(body []byte) (TunnelReply, error) {
	p := parser{b: body}
	var r TunnelReply
	copy(r.Key[:], p.take(len(r.Key)))
	port := p.uvarint()
	if port == 0 || port > 0xffff {
		p.bad = true
	}
	r.Port = uint16(port)
	for n := p.tunnels(); n > 0 && !p.bad; n-- {
		var l TunnelLease
		addr, bits := p.address(), p.uvarint()
		if bits > uint64(addr.BitLen()) {
			p.bad = true
			break
		}
		l.Local = netip.PrefixFrom(addr, int(bits))
		l.Remote = p.address()
		r.Tunnels = append(r.Tunnels, l)
	}
	return r, p.err("tunnel reply")
}

// tunnels reads a number of uplinks: at least one.
func (p *parser) tunnels() uint64 {
	n := p.uvarint()
	if n < 1 || n > MaxTunnels {
		p.bad = true
	}
	return n
}

func (p *parser) address() netip.Addr {
	a, ok := netip.AddrFromSlice(p.block())
	if !ok {
		p.bad = true
	}
	return a
}
