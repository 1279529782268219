package experiment

import "strings"

// simulation is where the ns-2 part of an experiment runs.
type simulation struct {
	quick   bool
	seed    uint64
	name    string
	only    string // cases whose name holds this
	records []Record
}

// wants reports whether a case is to be simulated.
func (s *simulation) wants(name string) bool { return strings.Contains(name, s.only) }
