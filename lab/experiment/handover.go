package experiment

// handover is what happens to delivery when the preferred path gets worse, dies,
// comes back or flaps: field cases F16 and F17.
func handover() Experiment {
	return Experiment{
		Name:    "handover",
		Summary: "Delivery while the preferred path degrades, dies, comes back and flaps",
		report:  reportHandover,
	}
}

// The cases of handover; what is varied is the round trip in ms.
const (
	handoverWorse = "degrades to 30 % loss"
	handoverDies  = "dies silently, comes back"
	handoverFlaps = "up 8 s, down 12 s"
	handoverCalm  = "jitter and 2 % loss, an hour"
)

func handoverTrips(name string, quick bool) []float64 {
	if name == handoverDies && !quick {
		return []float64{40, 100, 500}
	}
	return []float64{40}
}

// gapLimit is the promise for a silent death at a round trip in ms.
func gapLimit(trip float64) float64 {
	if trip > 100 {
		return 2
	}
	return 1
}

func reportHandover(records []Record) report {
	r := report{preface: `Two paths of 8 Mbit/s (of 0.5 in the long cases); the first is preferred. The path
that carries dies: it passes nothing in either direction and says nothing. Rows are the round trip
in ms. Gap is the longest time in which nothing reached the collector's output.
Faults are readings that came twice or out of sequence, or are missing before one
that came. Throughput is the mean of all runs; gaps and faults are of the worst.`}
	for _, name := range []string{handoverWorse, handoverDies, handoverFlaps, handoverCalm} {
		var in []Record
		for _, record := range records {
			if record.Case == name {
				in = append(in, record)
			}
		}
		if len(in) == 0 {
			continue
		}
		r.tables = append(r.tables, throughputTable(name, "round trip, ms", in),
			mostTable(name+": longest gap of all runs, s", "round trip, ms", "gap_s", in))
		r.plots = append(r.plots, seriesPlot(name, in, 40))
		s := pick(records, name)
		for _, at := range s.rates() {
			if !s.has(schemeProduct, at) {
				continue
			}
			gap, faults, switches := s.most(schemeProduct, at, "gap_s"), s.most(schemeProduct, at, "faults"), s.most(schemeProduct, at, "switches")
			r.check(faults == 0, "%s, %v ms: nothing lost, doubled or out of order", name, at)
			if name == handoverDies {
				r.check(gap <= gapLimit(at), "%s, %v ms: longest gap of all runs %.2f s; promised is %v s", name, at, gap, gapLimit(at))
			}
			if name == handoverFlaps {
				r.check(switches <= 1, "%s: %v switches; promised is one in ten minutes", name, switches)
			}
			if name == handoverCalm {
				r.check(switches == 0, "%s: %v switches; promised is no false alarm", name, switches)
			}
		}
	}
	return r
}
