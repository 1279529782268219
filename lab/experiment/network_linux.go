package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"sluice/lab"
	"sluice/lab/flow"
	"sluice/lab/topology"
)

// The links of the experiments that follow section "What Linux really does" of
// the design: 8 Mbit/s, a queue of 50 packets, 2 ms each way.
const (
	linkRate  = 8e6
	linkQueue = 50
	linkDelay = 2 * time.Millisecond
)

// capacity is what such a link carries in KB/s: 1452 bytes of payload in a frame
// of 1514. A share p of packets that are lost after they have spent their time
// on it leaves (1-p) of that.
const capacity = linkRate / 8 / flow.Kilo * 1452 / 1514

func link() topology.Quality {
	return topology.Quality{Rate: linkRate, Delay: linkDelay, Limit: linkQueue}
}

// port is where every receiver listens.
const port = 7600

// network is a sender and a receiver with paths between them. It lives for one
// run: nothing that a kernel remembers reaches the next.
type network struct {
	*topology.Multipath
	up, down []topology.Quality // of each path, now
}

func newNetwork(qualities ...topology.Quality) (*network, error) {
	options := make([]topology.PathOptions, len(qualities))
	for i, q := range qualities {
		options[i] = topology.PathOptions{Device: device(i), Up: q, Down: q}
	}
	m, err := topology.NewMultipath(options...)
	if err != nil {
		return nil, err
	}
	n := &network{Multipath: m}
	for _, q := range qualities {
		n.up, n.down = append(n.up, q), append(n.down, q)
	}
	// Each of the receiver's addresses is reached by its own path: for the kernel
	// the peer's address is the path.
	for _, p := range m.Paths {
		exit := netip.PrefixFrom(p.Exit.B.Address(), 32)
		if err := m.Gateway.Route(exit, p.Access.B.Address(), 0); err != nil {
			return nil, errors.Join(err, m.Close())
		}
	}
	return n, nil
}

func device(path int) string { return fmt.Sprintf("wlan%d", path) }

// impair changes what happens to packets towards the receiver on a path.
func (n *network) impair(path int, q topology.Quality) error {
	n.up[path] = q
	return n.Paths[path].Set(q, n.down[path])
}

// locals and remotes are the addresses of the ends, one a path.
func (n *network) locals() []netip.Addr {
	var list []netip.Addr
	for _, p := range n.Paths {
		list = append(list, p.Access.A.Address())
	}
	return list
}

func (n *network) remotes() []netip.AddrPort {
	var list []netip.AddrPort
	for _, p := range n.Paths {
		list = append(list, netip.AddrPortFrom(p.Exit.B.Address(), port))
	}
	return list
}

// openTimeout bounds how long a scheme may take to connect over clean links.
const openTimeout = 20 * time.Second

// open connects a scheme over the network's paths.
func (n *network) open(ctx context.Context, b *bench, s scheme) (flow.Sender, error) {
	if s.isProduct() {
		return b.product(ctx, n.productOptions(s))
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	o := flow.Options{Transport: s.transport, From: n.Gateway, To: n.Collector, Local: n.locals(), Remote: n.remotes()}
	if s.transport.Protocol == flow.MPTCP {
		var extra []netip.Addr
		for _, r := range o.Remote[1:] {
			extra = append(extra, r.Addr())
		}
		err := errors.Join(
			flow.AllowSubflows(n.Gateway, len(o.Remote)),
			flow.AllowSubflows(n.Collector, len(o.Remote), extra...),
		)
		if err != nil {
			return nil, err
		}
	}
	return flow.Open(ctx, o)
}

func (n *network) productOptions(s scheme) flow.ProductOptions {
	o := flow.ProductOptions{
		Near: n.Gateway, Far: n.Collector, Reach: []string{n.Common.String()},
		Uplink: s.uplink, Collector: "[tunnel]\n",
	}
	for i, p := range n.Paths {
		path := lab.SitePath{Interface: device(i)}
		if s.bare {
			path.Collector = p.Exit.B.Address().String()
		}
		o.Paths = append(o.Paths, path)
	}
	return o
}
