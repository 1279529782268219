package experiment

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"sluice/lab/flow"
	"sluice/lab/topology"
)

func measurePER(ctx context.Context, b *bench) error {
	b.need(2*capacity, b.perLength())
	if err := b.shared(ctx); err != nil {
		return err
	}
	for _, name := range perCases(b.env.Quick && b.env.Case == "") {
		for _, at := range perRates(b.env.Quick) {
			losses := perLoss(name, at/100)
			bound := capacity * (1 - at/100)
			if name == perTwoClean {
				bound = capacity
			}
			for _, s := range perSchemes(len(losses)) {
				for run := range b.runs() {
					r := Record{Experiment: b.name, Source: Measured, Case: name, Scheme: s.name, At: at, Run: run + 1, Bound: round(bound)}
					if err := b.record(ctx, r, func(r *Record) error { return b.underLoss(ctx, r, s, losses) }); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// shared runs schemes beside a CUBIC flow over a path that loses nothing but what
// overflows its queue.
func (b *bench) shared(ctx context.Context) error {
	for _, s := range append([]scheme{tcpScheme("cubic", 1), tcpScheme("bbr", 1), tcpScheme("bbr", 4), sctpScheme(true, 4)}, products()...) {
		for run := range b.runs() {
			r := Record{Experiment: b.name, Source: Measured, Case: perShared, Scheme: s.name, Run: run + 1, Bound: round(capacity)}
			if err := b.record(ctx, r, func(r *Record) error { return b.besideCUBIC(ctx, r, s) }); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *bench) besideCUBIC(ctx context.Context, r *Record, s scheme) error {
	n, err := newNetwork(link())
	if err != nil {
		return err
	}
	defer n.Close()
	remote := netip.AddrPortFrom(n.remotes()[0].Addr(), port+1)
	rival, err := flow.Open(ctx, flow.Options{
		Transport: tcpScheme("cubic", 1).transport, From: n.Gateway, To: n.Collector, Remote: []netip.AddrPort{remote},
	})
	if err != nil {
		return err
	}
	defer rival.Close()
	sender, err := n.open(ctx, b, s)
	if err != nil {
		return err
	}
	// Long enough for both to find their share.
	length := 2 * b.perLength()
	rate := make(chan float64, 1)
	begin := func() error {
		go func() {
			result, _ := rival.Run(ctx, length, func() error { return nil })
			rate <- result.Series.Mean()
		}()
		return nil
	}
	result, err := follow(ctx, sender, length, []step{{do: begin}})
	if err != nil {
		return err
	}
	r.setResult(result)
	other := <-rate
	r.value("rival_kbs", other)
	r.value("rival_percent", 100*other/(other+r.Mean))
	return nil
}

func (b *bench) perLength() time.Duration { return b.length(8*time.Second, 4*time.Second) }

// underLoss runs a scheme over paths that begin to lose once it is established.
func (b *bench) underLoss(ctx context.Context, r *Record, s scheme, losses []topology.Quality) error {
	qualities := make([]topology.Quality, len(losses))
	for i := range qualities {
		qualities[i] = link()
	}
	n, err := newNetwork(qualities...)
	if err != nil {
		return err
	}
	defer n.Close()
	sender, err := n.open(ctx, b, s)
	if err != nil {
		return err
	}
	onset := func() error {
		for i, loss := range losses {
			q := link()
			q.Loss, q.Burst = loss.Loss, loss.Burst
			if err := n.impair(i, q); err != nil {
				return err
			}
		}
		return nil
	}
	result, err := sender.Run(ctx, b.perLength(), onset)
	if err != nil {
		return err
	}
	r.setResult(result)
	return nil
}

// setResult sets what follows from a run.
func (r *Record) setResult(result flow.Result) {
	r.setSeries(result.Series)
	r.value("gap_s", result.Gap.Length.Seconds())
	if result.Sent > 0 {
		r.value("resent_percent", 100*result.Loss())
	}
	sum, n := time.Duration(0), 0
	for _, rtt := range result.RTT {
		if rtt > 0 {
			sum += rtt
			n++
		}
	}
	if n > 0 {
		r.value("delay_ms", 1000*(sum/time.Duration(n)).Seconds())
	}
	if o := result.Product; o != nil {
		r.value("faults", float64(o.Faults))
		u := o.Status.Uplink
		r.value("switches", float64(len(u.Switches)))
		for _, s := range u.Switches {
			r.Switches = append(r.Switches, fmt.Sprintf("%.2f %s -> %s: %s", s.At.Sub(o.Onset).Seconds(), s.From, s.To, s.Reason))
		}
		r.Note = carried(u.Carrier, u.Underlay, u.Choice)
	}
}
