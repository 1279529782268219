package experiment

import (
	"context"
	"slices"
	"time"

	"sluice/lab/ns2"
	"sluice/lab/topology"
)

// per is throughput under packet loss, on one path and on two ([MS] 2, 4 and
// the design's own table for today's kernels).
func per() Experiment {
	return Experiment{
		Name:     "per",
		Summary:  "Throughput under packet loss, over one path and over two",
		simulate: simulatePER, report: reportPER,
	}
}

// simulatePER runs the same links in ns-2, with the transports that it has.
func simulatePER(ctx context.Context, s *simulation) error {
	length, runs := ns2.PEROnset+8*time.Second, 3
	if s.quick {
		runs = 1
	}
	for _, name := range []string{perOne, perTwoClean, perTwoBoth} {
		if !s.wants(name) {
			continue
		}
		for _, at := range perRates(s.quick) {
			var losses []float64
			for _, q := range perLoss(name, at/100) {
				losses = append(losses, q.Loss)
			}
			schemes := []string{ns2.TCPDefault, ns2.TCP, ns2.SCTP}
			if name == perTwoClean {
				schemes = append(schemes, ns2.MSSCTP)
			}
			for _, scheme := range schemes {
				for run := range runs {
					seed := s.seed + uint64(run)
					trace, err := ns2.PER(ctx, scheme, losses, seed, length)
					if err != nil {
						return err
					}
					s.add(Record{Case: name, Scheme: scheme, At: at, Run: run + 1, Seed: seed}, trace.From(ns2.PEROnset), 5)
				}
			}
		}
	}
	return nil
}

// The cases of per.
const (
	perOne      = "one path, random loss"
	perBursty   = "one path, bursty loss"
	perTwoClean = "two paths, loss on the first"
	perTwoBoth  = "two paths, loss on both"
	perShared   = "one path, shared with a CUBIC flow"
)

// perBurst is how many packets a burst of loss takes on average.
const perBurst = 5

// perLoss returns the loss of a case on each path at p.
func perLoss(name string, p float64) []topology.Quality {
	random, clean := topology.Quality{Loss: p}, topology.Quality{}
	switch name {
	case perOne:
		return []topology.Quality{random}
	case perBursty:
		if p == 0 {
			return []topology.Quality{clean}
		}
		return []topology.Quality{{Burst: topology.BurstsOf(p, perBurst)}}
	case perTwoClean:
		return []topology.Quality{random, clean}
	default:
		return []topology.Quality{random, random}
	}
}

func perCases(quick bool) []string {
	if quick {
		return []string{perOne, perTwoClean}
	}
	return []string{perOne, perBursty, perTwoClean, perTwoBoth}
}

func perRates(quick bool) []float64 {
	if quick {
		return []float64{0, 10, 30}
	}
	return []float64{0, 5, 10, 20, 30, 40, 50}
}

func perSchemes(paths int) []scheme {
	list := []scheme{tcpScheme("cubic", 1), tcpScheme("bbr", 1)}
	if paths == 1 {
		list = append(list, tcpScheme("bbr", 4))
	} else {
		list = append(list, mptcpScheme())
	}
	list = append(list, sctpScheme(false, 1), sctpScheme(true, 1))
	if paths == 1 {
		list = append(list, sctpScheme(true, 4))
	}
	return append(list, products()...)
}

// perTargets are the shares of (1-p)*C that the product promises on one path.
var perTargets = [...]struct{ at, share float64 }{{0, .97}, {5, .95}, {10, .95}, {20, .92}, {30, .60}}

func reportPER(records []Record) report {
	r := report{preface: `One gateway and one collector, one network namespace each, with two routers on
every path between them. A path has 8 Mbit/s, 2 ms each way and a queue of 50
packets on one hop; loss comes on the next hop and only towards the collector, so
that a lost packet has spent its time on the link, and (1-p)*C is the bound: C is
959 KB/s, 1452 bytes of payload in a frame of 1514. Connections are made while
nothing is lost, then loss sets in and counting begins. Figures are payload in
KB/s (1 KB = 1000 bytes), means of all runs; the kernel's random losses cannot be
seeded. Bursty loss is a Gilbert-Elliott model with bursts of 5 packets on
average. With two paths, single-path schemes use the first, and the bound is the
better path alone. The product runs for 3 s before the onset, so that every carrier
that it wants is there. ns-2: the same links in the simulator; "tcp-default" is its
TCP as it comes, "tcp" has full packets and selective acknowledgements, "ms-sctp" is
its SCTP with the second path made primary one second after the onset.`}
	for _, name := range perCases(false) {
		in := slices.DeleteFunc(slices.Clone(records), func(r Record) bool { return r.Case != name })
		if len(in) == 0 {
			continue
		}
		r.tables = append(r.tables,
			throughputTable(name, "loss, %", in),
			varianceTable(name, "loss, %", in))
		r.plots = append(r.plots, seriesPlot(name, in, 20, 30, 10))
	}
	real := slices.DeleteFunc(slices.Clone(records), func(r Record) bool { return r.Source != Measured })
	one := pick(real, perOne)
	if one.has("tcp cubic", 0) {
		// Emulation by a processor that has no time to spare measures itself.
		got := one.mean("tcp cubic", 0)
		r.check(got >= 0.95*one.bound(0), "the machine was fast enough to measure: on the clean link CUBIC has %.2f of its capacity", got/one.bound(0))
	}
	for _, target := range perTargets {
		got, bound, ok := one.mean(schemeProduct, target.at), one.bound(target.at), one.has(schemeProduct, target.at)
		if !ok {
			continue
		}
		r.check(got >= target.share*bound, "one path, %v %%: the product reaches %.2f of (1-p)*C; promised is %.2f", target.at, got/bound, target.share)
		best, scheme := one.best(target.at, schemeProduct, schemeMS, schemeTCPSCTP)
		if scheme == "" {
			continue
		}
		r.check(got >= 0.95*best, "one path, %v %%: the product has %.2f of the best baseline of the run, %s", target.at, got/best, scheme)
	}
	shared := pick(real, perShared)
	if len(shared) > 0 {
		r.tables = append(r.tables, throughputTable(perShared, "loss, %", shared),
			valueTable(perShared+": what the CUBIC flow keeps, %", "loss, %", "rival_percent", shared))
	}
	if shared.has(schemeProduct, 0) {
		kept := shared.value(schemeProduct, 0, "rival_percent")
		r.check(kept >= 40, "on a shared link, where loss is congestion, the competitor keeps %.0f %%; promised are 40 %%", kept)
	}
	two := pick(real, perTwoClean)
	for _, at := range two.rates() {
		if two.has(schemeProduct, at) {
			got := two.from(schemeProduct, at, 3)
			r.check(got >= 0.9*two.bound(at), "two paths, %v %% on the first: 3 s after the onset the product has %.2f of the clean path", at, got/two.bound(at))
		}
	}
	both := pick(real, perTwoBoth)
	for _, at := range both.rates() {
		if both.has(schemeMS, at) {
			ms, sctp := both.mean(schemeMS, at), both.mean("sctp default", at)
			r.check(ms >= overhead*sctp, "[MS]: MS-SCTP >= SCTP, two paths, %v %%: %.0f and %.0f KB/s", at, ms, sctp)
		}
	}
	all := pick(records, perOne)
	for _, c := range []struct{ where, sctp, tcp string }{
		{"in the kernel", "sctp default", "tcp cubic"},
		{"in ns-2", "sctp (ns-2)", "tcp (ns-2)"},
		{"in ns-2 with its TCP as it comes", "sctp (ns-2)", "tcp-default (ns-2)"},
	} {
		for _, at := range all.rates() {
			if at > 0 && all.has(c.sctp, at) && all.has(c.tcp, at) {
				sctp, tcp := all.mean(c.sctp, at), all.mean(c.tcp, at)
				r.check(sctp > tcp, "[MS]: SCTP above TCP %s, one path, %v %%: %.0f and %.0f KB/s", c.where, at, sctp, tcp)
			}
		}
	}
	r.reasons = append(r.reasons, `[MS] finds SCTP above TCP at every loss rate. In ns-2 that holds against its TCP as
it comes, not against one with full packets and selective acknowledgements. Today's kernel
finds TCP's losses by RACK and tail loss probes within a round trip, while its SCTP
waits for a retransmission timeout of at least a second when a retransmission is
lost as well; and BBR does not take a random loss for congestion.`)
	return r
}
