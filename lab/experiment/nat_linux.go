package experiment

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"sluice/lab/topology"
)

func measureNAT(ctx context.Context, b *bench) error {
	length := b.length(30*time.Second, 20*time.Second)
	b.need(capacity, length)
	for _, box := range natBoxes() {
		r := Record{Case: string(box), Run: 1}
		build := func() (*network, error) { return behindNAT(box) }
		steps := func(n *network) []step { return natSteps(box, n) }
		list := products()
		if err := b.measured(ctx, r, list[len(list)-1], length, build, steps); err != nil {
			return err
		}
	}
	return nil
}

// behindNAT makes a network whose middleboxes do from the start what they do.
func behindNAT(box natBox) (*network, error) {
	q := tripQuality(40)
	n, err := newNetwork(q, q)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, p := range n.Paths {
		errs = append(errs, p.Masquerade())
		switch box {
		case natNoSCTP:
			errs = append(errs, p.Drop(topology.SCTP))
		case natSmall:
			// The routers would say so by ICMP, which never arrives.
			errs = append(errs, p.Middle.A.SetMTU(1280), p.Middle.B.SetMTU(1280),
				p.Access.Drop(topology.ICMP), p.Exit.Drop(topology.ICMP))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

func natSteps(box natBox, n *network) []step {
	const soon, later = 5 * time.Second, 15 * time.Second
	each := func(f func(p *topology.Path) error) func() error {
		return func() error {
			var errs []error
			for _, p := range n.Paths {
				errs = append(errs, f(p))
			}
			return errors.Join(errs...)
		}
	}
	switch box {
	case natRebound:
		return []step{{at: soon, do: each(func(p *topology.Path) error { return p.Near.Rebind() })}}
	case natRenewed:
		return []step{{at: soon, do: each(func(p *topology.Path) error {
			return errors.Join(p.Access.A.Renumber(netip.PrefixFrom(p.Access.A.Address().Next(), 24)), p.Join(n.Multipath))
		})}}
	case natNoUDP:
		return []step{
			{at: soon, do: each(func(p *topology.Path) error { return p.Drop(topology.SCTP, topology.UDP) })},
			{at: later, do: each(func(p *topology.Path) error { return p.Drop() })},
		}
	}
	return nil
}
