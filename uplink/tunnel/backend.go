package tunnel

import (
	"net/netip"
	"time"
)

// backend makes WireGuard devices. Its methods may be called by one goroutine at
// a time, and block for no longer than the kernel takes to answer.
type backend interface {
	// sweep removes what an earlier process left: devices that ours recognises by
	// their name and public key, which is zero if it has none yet, and rules.
	sweep(ours func(name string, public key) bool) error
	// create makes a device with its addresses, routes and peers and puts it up.
	// One with many peers that an earlier process left, it takes over. Otherwise it
	// returns an error that wraps errTaken if there is one of that name.
	create(name string, s settings, peers []peer) (device, error)
	// close removes no devices.
	close() error
}

// device is a WireGuard device that is up. Of setPeers and peers, each may run
// while the other does.
type device interface {
	// setPeers removes the peers named by gone, then adds or changes those of set.
	// Others notice nothing.
	setPeers(set []peer, gone []key) error
	setMTU(mtu int) error
	// peers returns an error that wraps errGone if somebody removed the device.
	peers() ([]peerState, error)
	// close removes the device.
	close() error
}

// settings is what a device has besides its peers.
type settings struct {
	private   key
	port      uint16 // to listen on, 0 for any
	mark      uint32 // on outer packets, 0 for none
	mtu       int
	addresses []netip.Prefix
	hosts     []netip.Addr // reached through the device, from its first address
	alias     string       // for people who look at the device
	many      bool         // has many peers, which reach it by whichever of the host's addresses
}

// peer is the other end of a tunnel.
type peer struct {
	public    key
	allowed   netip.Prefix   // its inner address
	endpoint  netip.AddrPort // where it is; invalid if it will come here
	keepalive time.Duration  // 0 for none
}

// peerState is what is known of a peer.
type peerState struct {
	public         key
	handshake      time.Time // zero if there was none
	sent, received uint64
}
