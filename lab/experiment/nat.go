package experiment

import (
	"fmt"
	"strings"
)

// nat is the product behind two NAT routers and other middleboxes: field cases
// F19, F20 and F21.
func nat() Experiment {
	return Experiment{
		Name:    "nat",
		Summary: "Behind two NAT routers: ports rebound, addresses renewed, protocols dropped, small packets only",
		report:  reportNAT,
	}
}

// natBox is what a middlebox does, from so long after the onset on.
type natBox string

// The cases of nat.
const (
	natPlain   natBox = "behind NAT"
	natRebound natBox = "ports rebound after 5 s"
	natRenewed natBox = "addresses renewed after 5 s"
	natNoSCTP  natBox = "SCTP dropped"
	natNoUDP   natBox = "SCTP and UDP dropped after 5 s, restored after 15 s"
	natSmall   natBox = "path MTU 1280, ICMP dropped"
)

func natBoxes() []natBox {
	return []natBox{natPlain, natRebound, natRenewed, natNoSCTP, natNoUDP, natSmall}
}

// natGap is how long delivery may pause: F19, F20 and F21.
func natGap(box natBox) float64 {
	switch box {
	case natRenewed, natSmall:
		return 10
	default:
		return 3
	}
}

func reportNAT(records []Record) report {
	r := report{preface: `Two paths of 8 Mbit/s, 20 ms each way, each behind a NAT router of its own. The
product runs with carrier and underlay chosen by itself. Gap is the longest time in
which nothing reached the collector's output.`}
	t := table{title: "What was delivered, and by what", head: []string{"middlebox", "scheme", "KB/s", "gap, s", "faults", "carrier at the end"}}
	for _, record := range records {
		t.rows = append(t.rows, []string{record.Case, record.Scheme, number(record.Mean), number(record.Values["gap_s"]), number(record.Values["faults"]), record.Note})
		if record.Scheme != schemeProduct {
			continue
		}
		r.check(!record.failed() && record.Values["faults"] == 0, "%s: delivered, nothing lost or doubled", record.Case)
		if limit := natGap(natBox(record.Case)); !record.failed() {
			gap := record.Values["gap_s"]
			r.check(gap <= limit, "%s: longest gap %.2f s; allowed are %v s", record.Case, gap, limit)
		}
	}
	r.tables = append(r.tables, t)
	for _, box := range natBoxes() {
		var in []Record
		for _, record := range records {
			if record.Case == string(box) && !record.failed() {
				in = append(in, record)
			}
		}
		if len(in) > 0 {
			r.plots = append(r.plots, seriesPlot(string(box), in, 0))
		}
	}
	return r
}

// carried says what carried a product's readings: "sctp over tunnel".
func carried(carrier, underlay, choice string) string {
	var parts []string
	for _, p := range []string{carrier, underlay} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	text := strings.Join(parts, " over ")
	if choice != "" {
		text = fmt.Sprintf("%s: %s", text, choice)
	}
	return text
}
