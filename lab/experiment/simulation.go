package experiment

// simulation is where the ns-2 part of an experiment runs.
type simulation struct {
	quick   bool
	seed    uint64
	name    string
	records []Record
}
