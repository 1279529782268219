package experiment

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// report is what an experiment's page says.
type report struct {
	title   string
	quick   bool
	preface string // how it was measured
	tables  []table
	plots   []plot
	checks  []check
	reasons []string // why papers and kernel disagree
}

// table is a table of figures in Markdown.
type table struct {
	title string
	head  []string
	rows  [][]string
}

// check is a statement that was tested on the records.
type check struct {
	holds bool
	text  string
}

func (r *report) check(holds bool, format string, args ...any) {
	r.checks = append(r.checks, check{holds, fmt.Sprintf(format, args...)})
}

// firstLine returns the text up to its first line break.
func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}

// markdown renders the page of the experiment with that name.
func (r report) markdown(name string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\nMade by `sluice-lab run %s`; every run is a line of [%s.jsonl](%s.jsonl).\n", r.title, name, name, name)
	if r.quick {
		b.WriteString("**Some of these were quick runs**, short and not repeated (`quick` in their lines).\n")
	}
	fmt.Fprintf(&b, "\n%s\n", r.preface)
	for _, t := range r.tables {
		fmt.Fprintf(&b, "\n## %s\n\n%s", t.title, t.markdown())
	}
	for _, p := range r.plots {
		fmt.Fprintf(&b, "\n![%s](%s)\n", p.title, p.file)
	}
	if len(r.checks) > 0 {
		b.WriteString("\n## What was expected, and whether it holds\n\n")
		for _, c := range r.checks {
			verdict := "holds"
			if !c.holds {
				verdict = "**does not hold**"
			}
			fmt.Fprintf(&b, "- %s: %s\n", verdict, c.text)
		}
	}
	if len(r.reasons) > 0 {
		b.WriteString("\n## Why papers and kernel differ\n")
		for _, text := range r.reasons {
			fmt.Fprintf(&b, "\n%s\n", text)
		}
	}
	return b.String()
}

func (t table) markdown() string {
	var b strings.Builder
	row := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	row(t.head)
	rule := make([]string, len(t.head))
	for i := range rule {
		rule[i] = "---:"
	}
	row(rule)
	for _, cells := range t.rows {
		row(cells)
	}
	return b.String()
}

// selection is records that are read together.
type selection []Record

// pick returns the records of one case that did not fail.
func pick(records []Record, name string) selection {
	var s selection
	for _, r := range records {
		if r.Case == name && !r.failed() {
			s = append(s, r)
		}
	}
	return s
}

func (r Record) failed() bool { return strings.HasPrefix(r.Note, "failed") }

// label is the scheme with its source, where that is not the kernel.
func (r Record) label() string {
	if r.Source == Measured {
		return r.Scheme
	}
	return fmt.Sprintf("%s (%s)", r.Scheme, r.Source)
}

// rates returns the values of what is varied, in order.
func (s selection) rates() []float64 {
	var list []float64
	for _, r := range s {
		if !slices.Contains(list, r.At) {
			list = append(list, r.At)
		}
	}
	slices.Sort(list)
	return list
}

// labels returns the schemes in the order of their first records.
func (s selection) labels() []string {
	var list []string
	for _, r := range s {
		if !slices.Contains(list, r.label()) {
			list = append(list, r.label())
		}
	}
	return list
}

// average returns the mean of f over the runs of a scheme at a value, NaN if
// there are none.
func (s selection) average(label string, at float64, f func(Record) float64) float64 {
	sum, n := 0.0, 0
	for _, r := range s {
		if r.label() == label && r.At == at {
			sum += f(r)
			n++
		}
	}
	return sum / float64(n)
}

func (s selection) has(label string, at float64) bool { return !math.IsNaN(s.mean(label, at)) }

func (s selection) mean(label string, at float64) float64 {
	return s.average(label, at, func(r Record) float64 { return r.Mean })
}

// from is the mean of what came later than so many seconds.
func (s selection) from(label string, at, seconds float64) float64 {
	return s.average(label, at, func(r Record) float64 {
		rest := r.Rates[min(len(r.Rates), int(seconds/r.Slot)):]
		sum := 0.0
		for _, rate := range rest {
			sum += rate
		}
		return sum / float64(len(rest))
	})
}

// value is the mean of a further figure, NaN if no run has it.
func (s selection) value(label string, at float64, name string) float64 {
	with := slices.DeleteFunc(slices.Clone(s), func(r Record) bool { _, ok := r.Values[name]; return !ok })
	return with.average(label, at, func(r Record) float64 { return r.Values[name] })
}

// most is the largest value of that name in any run, NaN if there is none.
func (s selection) most(label string, at float64, name string) float64 {
	largest := math.NaN()
	for _, r := range s {
		if v, ok := r.Values[name]; ok && r.label() == label && r.At == at && !(v <= largest) {
			largest = v
		}
	}
	return largest
}

// bound is the most that the links could have carried, 0 if there is none.
func (s selection) bound(at float64) float64 {
	for _, r := range s {
		if r.At == at && r.Bound > 0 {
			return r.Bound
		}
	}
	return 0
}

// best returns the largest mean of all schemes but some.
func (s selection) best(at float64, but ...string) (rate float64, label string) {
	for _, l := range s.labels() {
		if mean := s.mean(l, at); !slices.Contains(but, l) && mean > rate {
			rate, label = mean, l
		}
	}
	return rate, label
}

// throughputTable has a row for each value of what is varied and a column for
// each scheme.
func throughputTable(title, varied string, records []Record) table {
	return figureTable(title+", KB/s", varied, records, true, selection.mean)
}

func varianceTable(title, varied string, records []Record) table {
	return figureTable(title+", variance of seconds, (KB/s)^2", varied, slices.DeleteFunc(slices.Clone(records), func(r Record) bool { return r.Source == Published }), false,
		func(s selection, label string, at float64) float64 {
			return s.average(label, at, func(r Record) float64 { return r.Variance })
		})
}

func valueTable(title, varied, name string, records []Record) table {
	return figureTable(title, varied, records, false, func(s selection, label string, at float64) float64 {
		return s.value(label, at, name)
	})
}

// mostTable shows the worst run of each scheme.
func mostTable(title, varied, name string, records []Record) table {
	return figureTable(title, varied, records, false, func(s selection, label string, at float64) float64 {
		return s.most(label, at, name)
	})
}

func figureTable(title, varied string, records []Record, bound bool, f func(s selection, label string, at float64) float64) table {
	s := slices.DeleteFunc(slices.Clone(selection(records)), Record.failed)
	// Schemes that failed have a column as well: an empty one.
	labels := selection(records).labels()
	t := table{title: title, head: append([]string{varied}, labels...)}
	for _, at := range selection(records).rates() {
		row := []string{number(at)}
		for _, l := range labels {
			row = append(row, number(f(s, l, at)))
		}
		if limit := s.bound(at); bound && limit > 0 {
			row = append(row, number(limit))
		}
		t.rows = append(t.rows, row)
	}
	if len(t.rows) > 0 && len(t.rows[0]) > len(t.head) {
		t.head = append(t.head, "bound")
	}
	return t
}

// number writes a figure with about three digits.
func number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return "-"
	case a >= 100 || v == math.Trunc(v):
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	default:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
}
