package topology

import (
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// rules are what a host does to packets beside forwarding them.
type rules struct {
	cut        map[string]struct{}   // devices from which nothing is taken in
	dropped    map[string][]Protocol // protocols of which nothing is taken in, by device
	translated []string              // devices behind whose address the host hides what it forwards
}

// cut stops or lets in what arrives at the end. A rule of the filter is silent:
// the device stays up, and nobody is told.
func (e *End) cut(on bool) error {
	return e.Host.change(func(r *rules) {
		if on {
			r.cut[e.Device] = struct{}{}
		} else {
			delete(r.cut, e.Device)
		}
	})
}

// Drop makes the end drop what arrives of some protocols, and pass all others
// again.
func (e *End) Drop(protocols ...Protocol) error {
	return e.Host.change(func(r *rules) { r.dropped[e.Device] = slices.Clone(protocols) })
}

// Masquerade makes the end's host a NAT router: what it sends by this end gets
// the end's address and a random port.
func (e *End) Masquerade() error {
	return e.Host.change(func(r *rules) { r.translated = append(r.translated, e.Device) })
}

// Rebind makes a NAT router forget its translations, as one that restarts or has
// run out of memory does: what goes on gets another port, and what comes in for
// the old one is lost.
func (h *Host) Rebind() error {
	err := h.Do(func() error { return netlink.ConntrackTableFlush(netlink.ConntrackTable) })
	if err != nil {
		return fmt.Errorf("forget the translations of %s: %w", h, err)
	}
	return nil
}

// table is the name of the lab's rules.
const table = "lab"

// change changes the rules and puts them into force as one.
func (h *Host) change(f func(*rules)) error {
	if h == nil {
		return fmt.Errorf("change the filter of %s: it is left alone; use a host of the lab's", h)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.rules.cut == nil {
		h.rules.cut, h.rules.dropped = make(map[string]struct{}), make(map[string][]Protocol)
	}
	f(&h.rules)
	c, err := nftables.New(nftables.WithNetNSFd(int(h.ns)))
	if err == nil {
		h.rules.write(c)
		err = c.Flush()
	}
	if err != nil {
		return fmt.Errorf("change the filter of %s: %w", h, err)
	}
	return nil
}

// write queues the whole set of rules in place of the present one.
func (r *rules) write(c *nftables.Conn) {
	t := &nftables.Table{Family: nftables.TableFamilyINet, Name: table}
	c.AddTable(t) // so that there is one to delete
	c.DelTable(t)
	c.AddTable(t)
	in := c.AddChain(&nftables.Chain{
		Name: "in", Table: t, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw,
	})
	drop := &expr.Verdict{Kind: expr.VerdictDrop}
	for device := range r.cut {
		c.AddRule(&nftables.Rule{Table: t, Chain: in, Exprs: append(isDevice(expr.MetaKeyIIFNAME, device), drop)})
	}
	for device, protocols := range r.dropped {
		for _, p := range protocols {
			match := append(isDevice(expr.MetaKeyIIFNAME, device),
				&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
				&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{byte(p)}},
				drop)
			c.AddRule(&nftables.Rule{Table: t, Chain: in, Exprs: match})
		}
	}
	if len(r.translated) == 0 {
		return
	}
	out := c.AddChain(&nftables.Chain{
		Name: "out", Table: t, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
	})
	for _, device := range r.translated {
		c.AddRule(&nftables.Rule{Table: t, Chain: out, Exprs: append(isDevice(expr.MetaKeyOIFNAME, device), &expr.Masq{FullyRandom: true})})
	}
}

// isDevice matches packets of one device.
func isDevice(key expr.MetaKey, device string) []expr.Any {
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, device)
	return []expr.Any{
		&expr.Meta{Key: key, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: name},
	}
}
