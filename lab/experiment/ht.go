package experiment

import (
	"context"
	"fmt"
	"time"

	"sluice/lab/ns2"
)

// htSingle is three flows that share a bottleneck, of which the middle one is
// measured: [HT] 1.
func htSingle() Experiment {
	return Experiment{
		Name:     "ht-single",
		Summary:  "TCP against SCTP among competitors, [HT] 1",
		simulate: simulateSingle,
		report:   reportSingle,
	}
}

// htMulti is two paths of which the first degrades: [HT] 2.
func htMulti() Experiment {
	return Experiment{
		Name:     "ht-multi",
		Summary:  "TCP against multi-homed SCTP when a path degrades, [HT] 2",
		simulate: simulateMulti,
		report:   reportMulti,
	}
}

func htCase(run int) string { return fmt.Sprintf("run %d", run) }

// htQueues are the bottleneck's, in packets.
func htQueues() []int { return []int{5, 10} }

func simulateSingle(ctx context.Context, s *simulation) error {
	for run := 1; run <= 2; run++ {
		if !s.wants(htCase(run)) {
			continue
		}
		for _, queue := range htQueues() {
			for _, protocol := range []string{ns2.TCPDefault, ns2.SCTPDefault, ns2.TCP, ns2.SCTP} {
				length := 10 * time.Second
				if run == 2 {
					length = 8 * time.Second
				}
				trace, err := ns2.HTSingle(ctx, protocol, run, queue, s.seed, length)
				if err != nil {
					return err
				}
				s.add(Record{Case: htCase(run), Scheme: protocol, At: float64(queue), Run: 1, Seed: s.seed}, trace, 5)
			}
		}
	}
	return nil
}

func simulateMulti(ctx context.Context, s *simulation) error {
	if !s.wants(htMultiCase) {
		return nil
	}
	for _, protocol := range []string{ns2.TCPDefault, ns2.TCP, ns2.SCTP, ns2.MSSCTP} {
		trace, err := ns2.HTMulti(ctx, protocol, s.seed, 8*time.Second)
		if err != nil {
			return err
		}
		s.add(Record{Case: htMultiCase, Scheme: protocol, At: htDegraded, Run: 1, Seed: s.seed}, trace, 5)
	}
	return nil
}

const (
	htMultiCase = "two paths"
	htDegraded  = 1 // Mbit/s of the first path from the onset of its degradation on
)

func reportSingle(records []Record) report {
	r := report{preface: `Three flows share 1.7 Mbit/s (212 KB/s) and a drop-tail queue of 5 or 10 packets; a
way takes 45 ms. The middle flow is measured. Run 1: all start together, the
others stop after 3.5 s and 6.5 s. Run 2: the others start 1 s and 4 s later and
stop after 7 s. In ns-2 "tcp-default" and "sctp-default" compete with the
simulator's TCP as it comes (Tahoe, 1000 bytes a packet, a window of 20), "tcp" and
"sctp" with one of full packets and selective acknowledgements. In the kernel
competitors are CUBIC. Delay: in ns-2 of a packet from end to end, in the kernel
the smoothed round trip.

[HT] publishes curves, no numbers: SCTP's throughput far above TCP's in both runs
and with both queues, its delay slightly above, and it settles sooner.`}
	for run := 1; run <= 2; run++ {
		in := pick(records, htCase(run))
		r.tables = append(r.tables, throughputTable(htCase(run), "queue", in),
			valueTable(htCase(run)+", delay, ms", "queue", "delay_ms", in))
		r.plots = append(r.plots, seriesPlot(htCase(run), in, 5))
		for _, at := range in.rates() {
			for _, c := range []struct{ what, sctp, tcp string }{
				{"ns-2, with the simulator's default TCP", "sctp-default (ns-2)", "tcp-default (ns-2)"},
				{"ns-2, with a full-size TCP", "sctp (ns-2)", "tcp (ns-2)"},
				{"kernel", "sctp default", "tcp cubic"},
			} {
				if !in.has(c.sctp, at) || !in.has(c.tcp, at) {
					continue
				}
				sctp, tcp := in.mean(c.sctp, at), in.mean(c.tcp, at)
				r.check(sctp > 1.1*tcp, "[HT]: SCTP far above TCP, run %d, queue %v, %s: %.0f and %.0f KB/s, ratio %.2f", run, at, c.what, sctp, tcp, sctp/tcp)
				sctp, tcp = in.value(c.sctp, at, "delay_ms"), in.value(c.tcp, at, "delay_ms")
				r.check(sctp >= tcp, "[HT]: SCTP's delay above TCP's, run %d, queue %v, %s: %.0f and %.0f ms", run, at, c.what, sctp, tcp)
			}
		}
	}
	r.reasons = append(r.reasons, `The published gap is one between SCTP and the simulator's default TCP, which sends
1000 bytes a packet, recovers from a loss by starting anew (Tahoe), and competes
against its like. A TCP with packets of the same size and selective
acknowledgements has the same congestion control as SCTP; where the two differ
above, it is by who meets a full queue first, in runs of a few seconds.`)
	return r
}

func reportMulti(records []Record) report {
	r := report{preface: `Two paths of 5 Mbit/s, 50 ms; 4.5 s after the start the first becomes one of 1
Mbit/s, 100 ms. TCP uses the first. [HT] publishes curves, no numbers: SCTP goes
over to the second path and has its throughput back; TCP stays slow. In ns-2
"ms-sctp" is native SCTP whose primary path is set half a second after the change.
Rows: the first path's rate after the change, in Mbit/s.`}
	in := pick(records, htMultiCase)
	r.tables = append(r.tables, throughputTable("Throughput", "path 0, Mbit/s", in),
		figureTable("Throughput in the last two seconds, KB/s", "path 0, Mbit/s", in, false, func(s selection, l string, at float64) float64 { return s.late(l, at) }))
	r.plots = append(r.plots, seriesPlot("A path degrades", in, htDegraded))
	for _, c := range []struct{ what, scheme string }{
		{"[HT]: native SCTP recovers, ns-2", "sctp (ns-2)"},
		{"with the primary path set by a policy, ns-2", "ms-sctp (ns-2)"},
		{"[HT]: native SCTP recovers, kernel", "sctp default"},
		{"the kernel's MPTCP recovers", "mptcp"},
		{"the product recovers", schemeProduct},
	} {
		if in.has(c.scheme, htDegraded) {
			late := in.late(c.scheme, htDegraded)
			r.check(late > 400, "%s: %.0f KB/s at the end (one good path: 600)", c.what, late)
		}
	}
	r.reasons = append(r.reasons, `RFC 9260 leaves a path after timeouts, and a path that is slower but loses nothing
has none, so native SCTP has no reason to go. What [HT] shows needs somebody who
sets the primary path. The papers' own score, loss, does not see a
slow path either; the product's default profile also counts the round trip and the
delivered rate, the profile "paper" does not.`)
	return r
}

// late is the mean of a run's last two seconds.
func (s selection) late(label string, at float64) float64 {
	return s.average(label, at, func(r Record) float64 {
		n := min(len(r.Rates), int(2/r.Slot))
		sum := 0.0
		for _, rate := range r.Rates[len(r.Rates)-n:] {
			sum += rate
		}
		return sum / float64(n)
	})
}
