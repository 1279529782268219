package paths

import (
	"fmt"
	"strings"
)

// String returns the route much as ip(8) writes it.
func (r route) String() string {
	var b strings.Builder
	if r.unreachable {
		b.WriteString("unreachable ")
	}
	b.WriteString(r.to.String())
	if r.gateway.IsValid() {
		fmt.Fprintf(&b, " via %s", r.gateway)
	}
	if r.index != 0 {
		fmt.Fprintf(&b, " on interface %d", r.index)
	}
	fmt.Fprintf(&b, " table %d metric %d", r.table, r.metric)
	return b.String()
}

// String returns the rule much as ip(8) writes it.
func (r rule) String() string {
	family := "IPv4"
	if r.ipv6 {
		family = "IPv6"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d:", family, r.priority)
	if r.from.IsValid() {
		fmt.Fprintf(&b, " from %s", r.from.Addr())
	}
	if r.to.IsValid() {
		fmt.Fprintf(&b, " to %s", r.to.Addr())
	}
	if r.mark != 0 {
		fmt.Fprintf(&b, " fwmark %#x", r.mark)
	}
	fmt.Fprintf(&b, " lookup %d", r.table)
	return b.String()
}
