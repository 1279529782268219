package ingest

import (
	"sync"
	"sync/atomic"

	"sluice/reading"
)

// field is what a rule and a topic's naming make of one field of the payload.
type field struct {
	path    string // dotted, as in the payload; empty for a payload that is one value
	name    string // of the reading, unless the payload decides that too
	unit    string
	invalid []decimal
	time    bool
	key     int // its place in rule.keys, or -1
}

// newField looks a field up in the rule.
func newField(path string, r *route) *field {
	own := path
	if path == "" {
		own = r.scalarName
	}
	known := r.rule.Fields[own]
	f := &field{path: path, name: own, unit: r.rule.Unit, time: path != "" && path == r.rule.Time, key: -1}
	if known.Name != "" {
		f.name = known.Name
	}
	if known.Unit != "" {
		f.unit = known.Unit
	}
	for _, s := range r.rule.invalid {
		if glob(s.pattern, own) {
			f.invalid = append(f.invalid, s.number)
		}
	}
	for i, key := range r.rule.keys {
		if key == path {
			f.key = i
		}
	}
	if name, ok := r.name.append(nil, f.name, noKeys); ok && len(name) > 0 {
		f.name = string(name)
	}
	return f
}

// unitOf is the unit of v in this field: only numbers have one.
func (f *field) unitOf(v reading.Value) string {
	if k := v.Kind(); k == reading.KindNumber || k == reading.KindNull {
		return f.unit
	}
	return ""
}

// flags marks numbers that mean "no measurement".
func (f *field) flags(v reading.Value) reading.Flags {
	if len(f.invalid) == 0 || v.Kind() != reading.KindNumber {
		return 0
	}
	d := parseDecimal(v.Raw())
	for _, e := range f.invalid {
		if d.compare(e) == 0 {
			return reading.FlagInvalid
		}
	}
	return 0
}

// table remembers the fields of routes that name them alike. Readers do not
// lock: the map is replaced, never changed.
type table struct {
	known atomic.Pointer[map[string]*field]
	mu    sync.Mutex // guards replacing known
}

// maxFields bounds a table; beyond it everything is forgotten at once.
const maxFields = 1024

func newTable() *table {
	t := new(table)
	t.known.Store(&map[string]*field{})
	return t
}

// add remembers fields that were met for the first time.
func (t *table) add(fs []*field) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := *t.known.Load()
	grown := make(map[string]*field, len(old)+len(fs))
	if len(old) < maxFields {
		for path, f := range old {
			grown[path] = f
		}
	}
	for _, f := range fs {
		if len(f.path) <= maxCached {
			grown[f.path] = f
		}
	}
	t.known.Store(&grown)
}
