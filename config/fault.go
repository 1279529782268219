package config

import (
	"fmt"
	"strconv"
	"strings"
)

// Fault is one thing that is wrong in a configuration, with what to do about
// it.
type Fault struct {
	Line    int    // counted from 1; 0 if no line of the file is to blame
	Field   string // "broker.listen", "mqtt[1].url"; lists are counted from 1
	Value   string // as it was written; empty if there is none or it is secret
	Problem string // what is wrong with it
	Remedy  string // what to write instead
}

// String is the fault on one line, without its line number.
func (f Fault) String() string {
	var b strings.Builder
	if f.Field != "" {
		b.WriteString(f.Field)
		if f.Value != "" {
			b.WriteString(" = " + f.Value)
		}
		b.WriteString(": ")
	}
	b.WriteString(f.Problem)
	if f.Remedy != "" {
		b.WriteString("; " + f.Remedy)
	}
	return b.String()
}

// Faults are all faults of one configuration, in the order of its lines. Faults
// that belong to no line come last.
type Faults []Fault

// Error lists every fault, one a line.
func (fs Faults) Error() string {
	return "configuration: " + strings.TrimSuffix(fs.Report(""), "\n")
}

// Report is every fault on a line of its own, in the form that editors and
// terminals turn into links: "file:line: fault".
func (fs Faults) Report(file string) string {
	var b strings.Builder
	for _, f := range fs {
		switch {
		case file != "" && f.Line > 0:
			fmt.Fprintf(&b, "%s:%d: ", file, f.Line)
		case file != "":
			fmt.Fprintf(&b, "%s: ", file)
		case f.Line > 0:
			fmt.Fprintf(&b, "line %d: ", f.Line)
		}
		b.WriteString(f.String())
		b.WriteByte('\n')
	}
	return b.String()
}

// shown is a value as a fault shows it: quoted if it is text, cut if it is long.
func shown(v any) string {
	const longest = 80
	s := fmt.Sprint(v)
	if t, ok := v.(string); ok {
		s = strconv.Quote(t)
	}
	if len(s) > longest {
		s = strings.ToValidUTF8(s[:longest], "") + "..."
	}
	return s
}
