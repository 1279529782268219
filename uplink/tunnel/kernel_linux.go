package tunnel

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// kernel is the backend that uses the kernel's WireGuard. Its devices outlive the
// process.
type kernel struct {
	nl *netlink.Handle
	wg *wgctrl.Client
}

var _ backend = (*kernel)(nil)

func openKernel(nl *netlink.Handle) (*kernel, error) {
	wg, err := wgctrl.New()
	if err != nil {
		nl.Close()
		return nil, fmt.Errorf("open WireGuard's control: %w", err)
	}
	return &kernel{nl: nl, wg: wg}, nil
}

func (k *kernel) sweep(ours func(name string, public key) bool) error {
	devices, err := k.wg.Devices()
	if err != nil {
		return fmt.Errorf("list WireGuard devices: %w", err)
	}
	for _, d := range devices {
		public := key(d.PublicKey)
		if d.PrivateKey == (wgtypes.Key{}) {
			public = key{} // what it shows is a product of zero
		}
		if d.Type != wgtypes.LinuxKernel || !ours(d.Name, public) {
			continue
		}
		l, found, err := findLink(k.nl, d.Name)
		if err == nil && found {
			err = l.remove()
		}
		if err != nil {
			return err
		}
	}
	return sweepRules(k.nl, func(name string) bool { return ours(name, key{}) })
}

func (k *kernel) create(name string, s settings, peers []peer) (device, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	err := k.nl.LinkAdd(&netlink.Wireguard{LinkAttrs: attrs})
	if errors.Is(err, unix.EEXIST) && s.many {
		return k.adopt(name, s, peers)
	}
	if errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("make device %s: %w", name, errTaken)
	}
	if err != nil {
		return nil, fmt.Errorf("make device %s: %w", name, err)
	}
	l, found, err := findLink(k.nl, name)
	if err == nil && !found {
		err = errGone
	}
	if err != nil {
		return nil, fmt.Errorf("make device %s: %w", name, err)
	}
	d := &kernelDevice{link: l, wg: k.wg}
	if err := d.start(s, peers); err != nil {
		return nil, errors.Join(err, l.remove())
	}
	return d, nil
}

// adopt takes over a device that an earlier process left, by its key, so that
// gateways notice nothing. Thousands of peers would take long to remove and add.
func (k *kernel) adopt(name string, s settings, peers []peer) (device, error) {
	l, found, err := findLink(k.nl, name)
	if err != nil {
		return nil, err
	}
	public, err := s.private.public()
	if err != nil {
		return nil, err
	}
	old, err := k.wg.Device(name)
	if !found || err != nil || old.PrivateKey != (wgtypes.Key{}) && key(old.PublicKey) != public {
		return nil, fmt.Errorf("make device %s: %w", name, errors.Join(errTaken, err))
	}
	d := &kernelDevice{link: l, wg: k.wg}
	known := make(map[key]netip.Prefix)
	for _, p := range old.Peers {
		known[key(p.PublicKey)] = netip.Prefix{} // unless its address is one and right
		if len(p.AllowedIPs) == 1 {
			known[key(p.PublicKey)] = prefix(p.AllowedIPs[0])
		}
	}
	var missing []peer
	for _, p := range peers {
		if known[p.public] != p.allowed {
			missing = append(missing, p)
		}
		delete(known, p.public)
	}
	if err := d.setPeers(nil, slices.Collect(maps.Keys(known))); err != nil {
		return nil, err
	}
	if err := l.clear(s.addresses); err != nil {
		return nil, err
	}
	return d, d.start(s, missing)
}

func (k *kernel) close() error {
	k.nl.Close()
	return k.wg.Close()
}

// kernelDevice is a device of the kernel's.
type kernelDevice struct {
	link *link
	wg   *wgctrl.Client
}

var _ device = (*kernelDevice)(nil)

func (d *kernelDevice) start(s settings, peers []peer) error {
	port, mark := int(s.port), int(s.mark)
	err := d.wg.ConfigureDevice(d.link.name, wgtypes.Config{PrivateKey: (*wgtypes.Key)(&s.private), ListenPort: &port, FirewallMark: &mark})
	if err != nil {
		return fmt.Errorf("configure device %s: %w", d.link.name, err)
	}
	if err := d.setPeers(peers, nil); err != nil {
		return err
	}
	return d.link.up(s)
}

func (d *kernelDevice) setPeers(set []peer, left []key) error {
	var c wgtypes.Config
	for _, k := range left {
		c.Peers = append(c.Peers, wgtypes.PeerConfig{PublicKey: wgtypes.Key(k), Remove: true, UpdateOnly: true})
	}
	for _, p := range set {
		pc := wgtypes.PeerConfig{PublicKey: wgtypes.Key(p.public), ReplaceAllowedIPs: true, AllowedIPs: []net.IPNet{*ipNet(p.allowed)}, PersistentKeepaliveInterval: &p.keepalive}
		if p.endpoint.IsValid() {
			pc.Endpoint = net.UDPAddrFromAddrPort(p.endpoint)
		}
		c.Peers = append(c.Peers, pc)
	}
	if len(c.Peers) == 0 {
		return nil
	}
	if err := d.wg.ConfigureDevice(d.link.name, c); err != nil {
		return fmt.Errorf("set peers of device %s: %w", d.link.name, goneDevice(err))
	}
	return nil
}

func (d *kernelDevice) setMTU(mtu int) error { return d.link.setMTU(mtu) }

func (d *kernelDevice) peers() ([]peerState, error) {
	dev, err := d.wg.Device(d.link.name)
	if err != nil {
		return nil, fmt.Errorf("read device %s: %w", d.link.name, goneDevice(err))
	}
	var all []peerState
	for _, p := range dev.Peers {
		all = append(all, peerState{public: key(p.PublicKey), handshake: p.LastHandshakeTime, sent: uint64(p.TransmitBytes), received: uint64(p.ReceiveBytes)})
	}
	return all, nil
}

func (d *kernelDevice) close() error { return d.link.remove() }

// goneDevice translates what wgctrl makes of ENODEV.
func goneDevice(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	return err
}
