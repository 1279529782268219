package paths

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	netlinkTimeout = 5 * time.Second
	readTries      = 3 // a dump that something changed under is read again
)

// linux is the kernel of this network namespace.
type linux struct {
	handle  *netlink.Handle
	wake    *wake
	filters filters

	tables, priorities [2]int // from, and the first no more ours
}

var _ kernel = (*linux)(nil)

func openKernel(opt Options) (kernel, error) {
	if err := mayMark(opt.Mark); err != nil {
		return nil, err
	}
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	if err := handle.SetSocketTimeout(netlinkTimeout); err != nil {
		handle.Close()
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	w, err := newWake()
	if err != nil {
		handle.Close()
		return nil, fmt.Errorf("follow changes of links, addresses, routes and rules: %w", err)
	}
	return &linux{
		handle: handle, wake: w, filters: filters{log: opt.Logger},
		tables:     [2]int{opt.Table, opt.Table + uplinksMost},
		priorities: [2]int{opt.Priority, opt.Priority + priorities},
	}, nil
}

// mayMark says whether this process may do what all of this needs.
func mayMark(mark uint32) error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open socket: %w", err)
	}
	defer unix.Close(s)
	if err := unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_MARK, int(mark)); err != nil {
		return fmt.Errorf("mark a socket: %w: run as root, or with CAP_NET_ADMIN", err)
	}
	return nil
}

func (k *linux) changed() <-chan struct{} { return k.wake.woken }

func (k *linux) close() error {
	err := k.filters.restore()
	k.wake.close()
	k.handle.Close()
	return err
}

func (k *linux) relax(paths []Path) error { return k.filters.relax(paths) }

func (k *linux) read() (s snapshot, ours installed, ipv6 bool, err error) {
	for range readTries {
		s, ours, ipv6, err = k.readOnce()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	if err == nil && len(ours.rules) > 0 {
		k.filters.takenOver()
	}
	return s, ours, ipv6, err
}

func (k *linux) readOnce() (s snapshot, ours installed, ipv6 bool, err error) {
	links, err := k.handle.LinkList()
	if err != nil {
		return s, ours, false, fmt.Errorf("read links: %w", err)
	}
	for _, l := range links {
		a := l.Attrs()
		s.links = append(s.links, link{
			index: a.Index, name: a.Name, mtu: a.MTU,
			up: a.RawFlags&unix.IFF_UP != 0, carrier: a.RawFlags&unix.IFF_LOWER_UP != 0,
		})
	}
	addrs, err := k.handle.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return s, ours, false, fmt.Errorf("read addresses: %w", err)
	}
	// What is on its way out still belongs to the path, but is not the first choice.
	slices.SortStableFunc(addrs, func(a, b netlink.Addr) int {
		return cmp.Compare(a.Flags&unix.IFA_F_DEPRECATED, b.Flags&unix.IFA_F_DEPRECATED)
	})
	for _, a := range addrs {
		p := prefix(a.IPNet)
		if p.Addr().IsGlobalUnicast() && a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) == 0 {
			s.addresses = append(s.addresses, address{index: a.LinkIndex, prefix: p})
		}
	}
	if err := k.readFamily(netlink.FAMILY_V4, &s, &ours); err != nil {
		if unsupported(err) {
			err = fmt.Errorf("%w: the kernel needs CONFIG_IP_MULTIPLE_TABLES", err)
		}
		return s, ours, false, err
	}
	if _, err := os.Stat("/proc/sys/net/ipv6"); err == nil {
		switch err := k.readFamily(netlink.FAMILY_V6, &s, &ours); {
		case err == nil:
			ipv6 = true
		case !unsupported(err):
			return s, ours, false, err
		}
	}
	return s, ours, ipv6, nil
}

func unsupported(err error) bool {
	return errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP)
}

// readFamily adds the rules and routes of one family.
func (k *linux) readFamily(family int, s *snapshot, ours *installed) error {
	rules, err := k.handle.RuleList(family)
	if err != nil {
		return fmt.Errorf("read rules: %w", err)
	}
	for _, r := range rules {
		if r.Family == family && r.Protocol == protocol && r.Priority >= k.priorities[0] && r.Priority < k.priorities[1] {
			ours.rules = append(ours.rules, rule{
				ipv6: family == netlink.FAMILY_V6, priority: r.Priority, mark: r.Mark, from: prefix(r.Src), to: prefix(r.Dst), table: r.Table,
			})
		}
	}
	all := &netlink.Route{Table: unix.RT_TABLE_UNSPEC}
	err = k.handle.RouteListFilteredIter(family, all, netlink.RT_FILTER_TABLE, func(r netlink.Route) bool {
		switch {
		case r.Table == unix.RT_TABLE_MAIN && r.Type == unix.RTN_UNICAST:
			s.routes = append(s.routes, fromNetlink(r)...)
		case r.Protocol == protocol && r.Table >= k.tables[0] && r.Table < k.tables[1]:
			ours.routes = append(ours.routes, fromNetlink(r)...)
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("read routes: %w", err)
	}
	return nil
}

// apply adds before it removes: at no moment does what belongs to a path have
// nowhere to go, or go elsewhere.
func (k *linux) apply(have, want installed) error {
	var errs []error
	done := func(what string, err error) {
		switch {
		case errors.Is(err, unix.EPERM):
			errs = append(errs, fmt.Errorf("%s: %w: run as root, or with CAP_NET_ADMIN", what, err))
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	for _, r := range want.routes {
		if !slices.Contains(have.routes, r) {
			done("add route "+r.String(), k.handle.RouteReplace(toNetlink(r)))
		}
	}
	for _, r := range want.rules {
		if !slices.Contains(have.rules, r) {
			done("add rule "+r.String(), ignore(k.handle.RuleAdd(toRule(r)), unix.EEXIST))
		}
	}
	for _, r := range have.rules {
		if !slices.Contains(want.rules, r) {
			done("remove rule "+r.String(), ignore(k.handle.RuleDel(toRule(r)), unix.ENOENT))
		}
	}
	for _, r := range have.routes {
		if !slices.Contains(want.routes, r) {
			done("remove route "+r.String(), ignore(k.handle.RouteDel(toNetlink(r)), unix.ESRCH)) // replaced, or gone with its interface
		}
	}
	return errors.Join(errs...)
}

func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

// fromNetlink returns a route for each of r's next hops.
func fromNetlink(r netlink.Route) []route {
	common := route{
		table: r.Table, to: prefix(r.Dst), source: addr(r.Src), metric: r.Priority, mtu: r.MTU, scope: uint8(r.Scope),
		unreachable: r.Type == unix.RTN_UNREACHABLE,
	}
	if common.unreachable {
		return []route{common} // IPv6 says that it leads to the loopback
	}
	if len(r.MultiPath) == 0 {
		return []route{hop(common, r.LinkIndex, r.Gw, r.Via, r.Flags)}
	}
	var routes []route
	for _, h := range r.MultiPath {
		routes = append(routes, hop(common, h.LinkIndex, h.Gw, h.Via, h.Flags))
	}
	return routes
}

func hop(r route, index int, gateway net.IP, via netlink.Destination, flags int) route {
	r.index, r.gateway, r.onlink = index, addr(gateway), flags&unix.RTNH_F_ONLINK != 0
	if v, ok := via.(*netlink.Via); ok { // an IPv4 route by an IPv6 gateway (RFC 5549)
		r.gateway = addr(v.Addr)
	}
	return r
}

func toNetlink(r route) *netlink.Route {
	n := &netlink.Route{
		Table: r.table, Protocol: protocol, Dst: ipNet(r.to), Src: ip(r.source), LinkIndex: r.index, Priority: r.metric,
		MTU: r.mtu, Scope: netlink.Scope(r.scope), Type: unix.RTN_UNICAST,
	}
	switch {
	case r.unreachable:
		n.Type = unix.RTN_UNREACHABLE
	case r.gateway.Is6() && r.to.Addr().Is4():
		n.Via = &netlink.Via{AddrFamily: unix.AF_INET6, Addr: ip(r.gateway)}
	default:
		n.Gw = ip(r.gateway)
	}
	if r.onlink {
		n.Flags = unix.RTNH_F_ONLINK
	}
	return n
}

func toRule(r rule) *netlink.Rule {
	n := netlink.NewRule()
	n.Family, n.Priority, n.Mark, n.Table, n.Protocol = netlink.FAMILY_V4, r.priority, r.mark, r.table, protocol
	if r.ipv6 {
		n.Family = netlink.FAMILY_V6
	}
	n.Src, n.Dst = ipNet(r.from), ipNet(r.to)
	return n
}

// addr and prefix are invalid for nil.
func addr(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

func prefix(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(addr(n.IP), bits)
}

// ip and ipNet are nil for what is invalid.
func ip(a netip.Addr) net.IP {
	if !a.IsValid() {
		return nil
	}
	return a.AsSlice()
}

func ipNet(p netip.Prefix) *net.IPNet {
	if !p.IsValid() {
		return nil
	}
	return &net.IPNet{IP: ip(p.Addr()), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
