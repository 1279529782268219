package experiment

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"

	"sluice/lab/flow"
)

// Source says where a record's figures come from.
type Source string

// The sources.
const (
	Published Source = "published" // printed in the paper
	Simulated Source = "ns-2"      // our scripts in ns-2.35
	Measured  Source = "kernel"    // real programs, real kernel, emulated links
)

// Record is one run.
type Record struct {
	Experiment string  `json:"experiment"`
	Source     Source  `json:"source"`
	Case       string  `json:"case"`   // the part of the experiment: "two paths, bursty loss"
	Scheme     string  `json:"scheme"` // what is compared: "tcp bbr"
	At         float64 `json:"at"`     // the value of what is varied, such as the loss in percent
	Run        int     `json:"run"`    // counted from 1; 0 of published figures
	Seed       uint64  `json:"seed,omitempty"`
	Quick      bool    `json:"quick,omitempty"` // shorter than a whole run, and not repeated

	Mean     float64 `json:"mean"`     // KB/s of payload, 1 KB = 1000 bytes
	Variance float64 `json:"variance"` // (KB/s)^2, of slots of one second
	Bound    float64 `json:"bound,omitempty"`
	// Values are further figures by name, with the unit in it: "gap_s".
	Values map[string]float64 `json:"values,omitempty"`
	// Switches are the product's changes of path, protocol or number of carriers,
	// in seconds since the onset, with their reasons.
	Switches []string `json:"switches,omitempty"`
	// Note is where a published figure stands, or what was peculiar.
	Note string `json:"note,omitempty"`

	Slot  float64   `json:"slot,omitempty"`  // seconds
	Rates []float64 `json:"rates,omitempty"` // KB/s, one a slot
}

// secondSlots is how many of a Series's slots make one of those that a variance
// is taken of.
const secondSlots = int(1e9 / flow.Interval)

// setSeries sets what follows from the series.
func (r *Record) setSeries(s flow.Series) {
	r.Mean = round(s.Mean())
	r.Variance = round(s.Every(secondSlots).Variance())
	r.Slot = s.Slot.Seconds()
	for _, rate := range s.Rates {
		r.Rates = append(r.Rates, round(rate))
	}
}

// round keeps three digits behind the point: no measurement here has more.
func round(v float64) float64 { return math.Round(v*1000) / 1000 }

// value sets a further figure.
func (r *Record) value(name string, v float64) {
	if r.Values == nil {
		r.Values = make(map[string]float64)
	}
	r.Values[name] = round(v)
}

// String is the record in a line for people.
func (r Record) String() string {
	return fmt.Sprintf("%s: %s, %s, at %v, run %d: %.0f KB/s", r.Experiment, r.Case, r.Scheme, r.At, r.Run, r.Mean)
}

func decodeRecord(line []byte) (Record, error) {
	var r Record
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return r, fmt.Errorf("read record %.80q: %w", line, err)
	}
	if r.Experiment == "" || r.Scheme == "" {
		return r, fmt.Errorf("read record %.80q: no experiment or scheme", line)
	}
	return r, nil
}
