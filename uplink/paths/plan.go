package paths

import (
	"cmp"
	"net/netip"
	"slices"
)

// link, address and route are what the kernel has. Routes and rules can be
// compared: two that are equal do the same.
type (
	link struct {
		index   int
		name    string
		mtu     int
		up      bool // switched on
		carrier bool
	}

	address struct {
		index  int
		prefix netip.Prefix
	}

	route struct {
		table       int
		to          netip.Prefix // /0 is the default route; also tells the family
		gateway     netip.Addr   // not valid if the link leads there
		source      netip.Addr   // preferred, if valid
		index       int          // of the interface, 0 if unreachable
		metric      int
		mtu         int   // 0 is the interface's
		scope       uint8 // IPv4's
		onlink      bool  // the gateway need not be in a connected network
		unreachable bool
	}

	rule struct {
		ipv6     bool
		priority int
		mark     uint32       // 0 is any
		from, to netip.Prefix // not valid is any
		table    int
	}
)

// snapshot is what others have set up. It holds the routes of the main table.
type snapshot struct {
	links     []link
	addresses []address
	routes    []route
}

// installed is what is ours.
type installed struct {
	rules  []rule
	routes []route
}

// Rules go by the mark first, since who marks a socket knows what he wants, then
// by the peer, then by the source. SCTP looks a peer up without a source, and
// takes whichever of its addresses fits the route: so the peer must come first.
const (
	priorityMark = 0
	priorityTo   = 10
	priorityFrom = 20
	priorities   = 30
)

// metricLast is the worst metric that is an int on every machine.
const metricLast = 1 << 30

// planner says what there ought to be.
type planner struct {
	patterns []Pattern
	mark     uint32
	table    int
	priority int
	ipv6     bool // the kernel has it
	slots    slots
	peers    map[string][]netip.Addr
}

// plan returns the paths that s holds, in order of preference, and what is to be
// installed for them: routes in the order in which they can be.
func (p *planner) plan(s snapshot) ([]Path, installed) {
	paths := p.find(s)
	var want installed
	for i := range paths {
		path := &paths[i]
		slot := p.slots.of(path.Name)
		if slot < 0 {
			path.Reason = ReasonTooMany
			continue
		}
		path.Mark, path.Table = p.mark+uint32(slot), p.table+slot
		routes := p.describe(path, s)
		want.routes = append(want.routes, routes...)
		want.rules = append(want.rules, p.rules(path, slot)...)
	}
	return paths, want
}

// find lists the uplinks, and gives each its slot.
func (p *planner) find(s snapshot) []Path {
	var paths []Path
	add := func(name string, index, mtu int) {
		if pref := preference(p.patterns, name); pref >= 0 {
			paths = append(paths, Path{Name: name, Index: index, MTU: mtu, Preference: pref, Metered: p.patterns[pref].Metered})
		}
	}
	for _, l := range s.links {
		add(l.name, l.index, l.mtu)
	}
	absent := func(name string) bool {
		return !slices.ContainsFunc(paths, func(path Path) bool { return path.Name == name })
	}
	for _, pattern := range p.patterns {
		if pattern.literal() && absent(pattern.Interface) {
			add(pattern.Interface, 0, 0)
		}
	}
	for _, name := range p.slots {
		if name != "" && absent(name) { // was here before
			add(name, 0, 0)
		}
	}
	slices.SortFunc(paths, func(a, b Path) int {
		return cmp.Or(cmp.Compare(a.Preference, b.Preference), cmp.Compare(a.Name, b.Name))
	})
	p.slots.assign(paths)
	// Of those that are gone, the ones that have lost their slot are forgotten.
	return slices.DeleteFunc(paths, func(path Path) bool {
		named := slices.ContainsFunc(p.patterns, func(pattern Pattern) bool { return pattern.literal() && pattern.Interface == path.Name })
		return path.Index == 0 && p.slots.of(path.Name) < 0 && !named
	})
}

// describe fills in what s knows of the path, and returns its routes, no two to
// the same destination with the same metric: a table takes only one. (IPv6 would
// make several into one with several gateways; the first will do.)
func (p *planner) describe(path *Path, s snapshot) []route {
	// Nothing that belongs to this path may fall through to the main table and
	// leave by another: that would make a dead path look alive.
	routes := []route{{table: path.Table, to: netip.PrefixFrom(netip.IPv4Unspecified(), 0), metric: metricLast, unreachable: true}}
	if p.ipv6 {
		routes = append(routes, route{table: path.Table, to: netip.PrefixFrom(netip.IPv6Unspecified(), 0), metric: metricLast, unreachable: true})
	}
	add := func(r route) {
		r.table = path.Table
		same := func(other route) bool { return other.to == r.to && other.metric == r.metric }
		if (p.ipv6 || r.to.Addr().Is4()) && !slices.ContainsFunc(routes, same) {
			routes = append(routes, r)
		}
	}
	path.Reason = p.judge(path, s)
	path.Up = path.Reason == ""
	var defaults []route
	for _, r := range s.routes {
		switch {
		case !usable(path, r):
		case r.to.Bits() == 0:
			defaults = append(defaults, r)
		case !r.gateway.IsValid():
			add(r)
		}
	}
	// Somebody in another network of ours may have asked for an address of this
	// uplink, and wants his answer there.
	for _, r := range s.routes {
		if p.local(r, s) {
			add(r)
		}
	}
	slices.SortStableFunc(defaults, func(a, b route) int {
		return cmp.Or(cmp.Compare(a.to.Addr().BitLen(), b.to.Addr().BitLen()), cmp.Compare(a.metric, b.metric))
	})
	for _, r := range defaults {
		add(r)
	}
	for _, r := range routes {
		if r.to.Bits() == 0 && r.gateway.IsValid() {
			path.Gateways = append(path.Gateways, r.gateway)
		}
	}
	return routes
}

// judge fills in the addresses, and says why the path is not up.
func (p *planner) judge(path *Path, s snapshot) (reason string) {
	i := slices.IndexFunc(s.links, func(l link) bool { return l.index == path.Index })
	if i < 0 {
		return ReasonNoInterface
	}
	for _, a := range s.addresses {
		if a.index == path.Index && (p.ipv6 || a.prefix.Addr().Is4()) {
			path.Addrs = append(path.Addrs, a.prefix)
		}
	}
	slices.SortStableFunc(path.Addrs, func(a, b netip.Prefix) int { return cmp.Compare(a.Addr().BitLen(), b.Addr().BitLen()) })
	switch l := s.links[i]; {
	case !l.up:
		return ReasonDown
	case !l.carrier:
		return ReasonNoCarrier
	case len(path.Addrs) == 0:
		return ReasonNoAddress
	}
	for _, r := range s.routes {
		if r.to.Bits() == 0 && r.index == path.Index && hasFamily(path.Addrs, r.to.Addr().Is6()) {
			return ""
		}
	}
	return ReasonNoRoute
}

// usable says whether a route of the main table is one of the path that leads
// anywhere now. Without carrier the routes may still be there (the kernel only
// flags them): an error at once is better than silence.
func usable(path *Path, r route) bool {
	return (path.Up || path.Reason == ReasonNoRoute) && r.index == path.Index && hasFamily(path.Addrs, r.to.Addr().Is6())
}

// local says whether a route leads to a network that this machine is connected to
// by an interface that is no uplink.
func (p *planner) local(r route, s snapshot) bool {
	if r.to.Bits() == 0 || r.gateway.IsValid() || r.to.Addr().IsLinkLocalUnicast() {
		return false
	}
	i := slices.IndexFunc(s.links, func(l link) bool { return l.index == r.index })
	return i >= 0 && preference(p.patterns, s.links[i].name) < 0
}

// rules returns the rules that lead into the path's table. Those for its mark are
// there whether or not the interface is.
func (p *planner) rules(path *Path, slot int) []rule {
	rules := []rule{{priority: p.priority + priorityMark + slot, mark: path.Mark, table: path.Table}}
	if p.ipv6 {
		rules = append(rules, rule{ipv6: true, priority: p.priority + priorityMark + slot, mark: path.Mark, table: path.Table})
	}
	for _, peer := range p.peers[path.Name] {
		if p.ipv6 || peer.Is4() {
			rules = append(rules, rule{ipv6: peer.Is6(), priority: p.priority + priorityTo + slot, to: single(peer), table: path.Table})
		}
	}
	for _, a := range path.Addrs {
		r := rule{ipv6: a.Addr().Is6(), priority: p.priority + priorityFrom + slot, from: single(a.Addr()), table: path.Table}
		if !slices.Contains(rules, r) { // an address may be set twice, with different networks
			rules = append(rules, r)
		}
	}
	return rules
}

func hasFamily(addrs []netip.Prefix, ipv6 bool) bool {
	return slices.ContainsFunc(addrs, func(a netip.Prefix) bool { return a.Addr().Is6() == ipv6 })
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// slots holds the name of the uplink that has each table, "" if none.
type slots [uplinksMost]string

// of returns the slot that the uplink has, -1 if none.
func (s *slots) of(name string) int { return slices.Index(s[:], name) }

// assign gives each path a slot, as far as there are any. One that has a slot
// keeps it; a new one takes that of an interface that is gone only if none was
// never used, so that marks keep their meaning for as long as possible.
func (s *slots) assign(paths []Path) {
	for _, path := range paths {
		if path.Index == 0 && s.of("") < 0 || s.of(path.Name) >= 0 {
			continue
		}
		free := s.of("")
		for i := 0; free < 0 && i < len(s); i++ {
			gone := slices.ContainsFunc(paths, func(p Path) bool { return p.Name == s[i] && p.Index == 0 })
			if gone || !slices.ContainsFunc(paths, func(p Path) bool { return p.Name == s[i] }) {
				free = i
			}
		}
		if free >= 0 {
			s[free] = path.Name
		}
	}
}
