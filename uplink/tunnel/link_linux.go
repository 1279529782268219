package tunnel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// rulePriority of the rule that keeps what comes out of a tunnel from being
// forwarded: after the local table (0) and before all others.
const rulePriority = 90

// link is a device as netlink sees it, whichever backend made it.
type link struct {
	nl   *netlink.Handle
	name string
	dev  netlink.Link
}

// findLink looks for a device.
func findLink(nl *netlink.Handle, name string) (l *link, found bool, err error) {
	dev, err := nl.LinkByName(name)
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("find device %s: %w", name, err)
	}
	return &link{nl: nl, name: name, dev: dev}, true, nil
}

// up gives the device its addresses and routes and puts it up.
func (l *link) up(s settings) error {
	if err := l.nl.LinkSetAlias(l.dev, s.alias); err != nil {
		return fmt.Errorf("name device %s: %w", l.name, err)
	}
	if err := l.setMTU(s.mtu); err != nil {
		return err
	}
	for _, a := range s.addresses {
		if err := l.nl.AddrReplace(l.dev, &netlink.Addr{IPNet: ipNet(a)}); err != nil {
			return fmt.Errorf("give device %s the address %s: %w", l.name, a, err)
		}
	}
	if err := l.nl.RuleAdd(l.rule()); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("forbid forwarding from device %s: %w: the kernel needs policy routing (IP_MULTIPLE_TABLES)", l.name, err)
	}
	err := l.nl.LinkSetUp(l.dev)
	if errors.Is(err, unix.EADDRINUSE) {
		return fmt.Errorf("listen on UDP port %d: %w: choose another port for tunnels, or stop what uses it", s.port, err)
	}
	if err != nil {
		return fmt.Errorf("put up device %s: %w", l.name, err)
	}
	for _, host := range s.hosts {
		err := l.nl.RouteAdd(&netlink.Route{
			LinkIndex: l.dev.Attrs().Index, Scope: netlink.SCOPE_LINK,
			Dst: ipNet(netip.PrefixFrom(host, host.BitLen())), Src: s.addresses[0].Addr().AsSlice(),
		})
		if err != nil {
			return fmt.Errorf("route %s through device %s: %w", host, l.name, err)
		}
	}
	return nil
}

// clear removes the addresses that the device should not have.
func (l *link) clear(keep []netip.Prefix) error {
	all, err := l.nl.AddrList(l.dev, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("list addresses of device %s: %w", l.name, err)
	}
	for _, a := range all {
		if slices.Contains(keep, prefix(*a.IPNet)) {
			continue
		}
		if err := l.nl.AddrDel(l.dev, &a); err != nil {
			return fmt.Errorf("take the address %s from device %s: %w", a.IPNet, l.name, err)
		}
	}
	return nil
}

// rule has the kernel drop what comes out of the device and is for somebody else,
// whatever ip_forward says: gateways must not reach each other, nor the collector
// what is behind a gateway. What is for this host the local table takes before.
func (l *link) rule() *netlink.Rule {
	r := netlink.NewRule()
	r.Family = netlink.FAMILY_V4
	r.Priority = rulePriority
	r.IifName = l.name
	r.Type = unix.RTN_BLACKHOLE
	return r
}

func (l *link) setMTU(mtu int) error {
	if err := l.nl.LinkSetMTU(l.dev, mtu); err != nil {
		return fmt.Errorf("set mtu %d of device %s: %w", mtu, l.name, gone(err))
	}
	return nil
}

// remove removes the device, unless somebody has, and its rule.
func (l *link) remove() error {
	err := l.nl.LinkDel(l.dev)
	if err = gone(err); errors.Is(err, errGone) {
		err = nil
	}
	return errors.Join(err, l.unrule())
}

func (l *link) unrule() error {
	if err := l.nl.RuleDel(l.rule()); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove rule of device %s: %w", l.name, err)
	}
	return nil
}

// sweepRules removes the rules of our devices that are no more.
func sweepRules(nl *netlink.Handle, ours func(name string) bool) error {
	rules, err := nl.RuleList(netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("list rules: %w", err)
	}
	for _, r := range rules {
		if r.Priority != rulePriority || r.IifName == "" || !ours(r.IifName) {
			continue
		}
		if _, found, err := findLink(nl, r.IifName); found || err != nil {
			continue // somebody's who lives
		}
		if err := (&link{nl: nl, name: r.IifName}).unrule(); err != nil {
			return err
		}
	}
	return nil
}

// gone tells a device that is no more from other errors.
func gone(err error) error {
	if errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	return err
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// prefix is what ipNet was made from.
func prefix(n net.IPNet) netip.Prefix {
	a, _ := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(a.Unmap(), bits)
}
