package ingest

import (
	"bytes"
	"errors"
	"io"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"sluice/reading"
)

// walker goes through a JSON payload once and collects its values. It is used
// again for the next message, so that only what readings keep is allocated.
type walker struct {
	input bytes.Buffer
	dec   jsontext.Decoder
	text  string // the payload; values are parts of it
	route *route
	known map[string]*field
	fresh []*field // fields met for the first time
	path  []byte   // dotted name of where the walk is
	found []found
	spare []byte // for unquoting and for names
	used  []bool // by place in rule.keys: the field became part of a name
}

// found is one value and what is known of its field.
type found struct {
	field *field
	value reading.Value
}

// Reasons, in one word, why a payload is kept raw; "utf8" and "size" are found
// before the walk.
const (
	reasonJSON      = "json"      // not the grammar of RFC 8259
	reasonDepth     = "depth"     // more than MaxDepth levels
	reasonDuplicate = "duplicate" // a name twice in one object: which one holds?
	reasonValues    = "values"    // more than MaxValues
	reasonName      = "name"      // a dotted name or a topic longer than MaxName
)

// walk collects the values of payload, whose text is the same; it returns the
// reason if it cannot be read.
func (w *walker) walk(payload []byte, text string, r *route) string {
	w.input = *bytes.NewBuffer(payload)
	w.dec.Reset(&w.input)
	w.text, w.route = text, r
	w.known = *r.table.known.Load()
	w.fresh, w.path, w.found = w.fresh[:0], w.path[:0], w.found[:0]
	reason := w.value(1)
	if reason == "" {
		if _, err := w.dec.ReadToken(); err != io.EOF {
			reason = reasonJSON // something follows the value
		}
	}
	if reason == "" && len(w.fresh) > 0 {
		r.table.add(w.fresh)
	}
	w.input = bytes.Buffer{} // do not keep the caller's payload
	return reason
}

// value walks one value; an object or array here is on the given level.
func (w *walker) value(level int) string {
	kind := w.dec.PeekKind()
	if kind != '{' && kind != '[' {
		return w.leaf()
	}
	if level > MaxDepth {
		return reasonDepth
	}
	if _, err := w.dec.ReadToken(); err != nil {
		return reasonOf(err)
	}
	end := len(w.path)
	for i := 0; ; i++ {
		next := w.dec.PeekKind()
		if next == '}' || next == ']' {
			break
		}
		if kind == '{' {
			name, err := w.dec.ReadValue()
			if err != nil {
				return reasonOf(err)
			}
			if reason := w.push(name); reason != "" {
				return reason
			}
		} else {
			w.dot()
			w.path = strconv.AppendInt(w.path, int64(i), 10)
		}
		if len(w.path) > MaxName {
			return reasonName
		}
		if reason := w.value(level + 1); reason != "" {
			return reason
		}
		w.path = w.path[:end]
	}
	_, err := w.dec.ReadToken()
	return reasonOf(err)
}

// push adds an object's quoted name to the path. An empty name becomes "_", so
// that no reading is without one.
func (w *walker) push(quoted []byte) string {
	w.dot()
	plain := quoted[1 : len(quoted)-1]
	switch {
	case len(plain) == 0:
		w.path = append(w.path, '_')
	case bytes.IndexByte(plain, '\\') < 0:
		w.path = append(w.path, plain...)
	default:
		var err error
		w.path, err = jsontext.AppendUnquote(w.path, quoted)
		return reasonOf(err)
	}
	return ""
}

func (w *walker) dot() {
	if len(w.path) > 0 {
		w.path = append(w.path, '.')
	}
}

// leaf collects a value that has none inside.
func (w *walker) leaf() string {
	if len(w.found) >= MaxValues {
		return reasonValues
	}
	raw, err := w.dec.ReadValue()
	if err != nil {
		return reasonOf(err)
	}
	end := int(w.dec.InputOffset())
	literal := w.text[end-len(raw) : end]
	var v reading.Value
	switch raw.Kind() {
	case 't', 'f':
		v = reading.Bool(literal == "true")
	case '0':
		if v, err = reading.Number(literal); err != nil {
			return reasonJSON
		}
	case '"':
		if bytes.IndexByte(raw, '\\') < 0 {
			v = reading.Text(literal[1 : len(literal)-1])
			break
		}
		if w.spare, err = jsontext.AppendUnquote(w.spare[:0], raw); err != nil {
			return reasonOf(err)
		}
		v = reading.Text(string(w.spare))
	}
	f, ok := w.known[string(w.path)]
	if len(w.path) == 0 {
		f = w.route.scalar // the payload is this one value
	} else if !ok {
		f = newField(string(w.path), w.route)
		w.fresh = append(w.fresh, f)
	}
	w.found = append(w.found, found{f, v})
	return ""
}

func reasonOf(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, jsontext.ErrDuplicateName):
		return reasonDuplicate
	}
	return reasonJSON
}

// readings makes the readings of what the walker found in m.
func (d *Decoder) readings(w *walker, r *route, m Message) []reading.Reading {
	at, timed := m.At, -1
	w.used = w.used[:0]
	for range r.rule.keys {
		w.used = append(w.used, false)
	}
	for i, f := range w.found {
		if !f.field.time {
			continue
		}
		ns, ok := deviceTime(f.value, r.rule.TimeUnit, r.set.zone)
		if ok && plausible(ns, m.At) {
			at, timed = reading.Time{Wall: ns, Quality: reading.FromDevice}, i
		} else if f.value.Kind() != reading.KindNull {
			d.count.badTimes.Add(1)
		}
	}
	device := r.object
	if len(w.found) == 1 && w.found[0].field.path == "" {
		device = r.scalarDevice
	}
	if len(r.device) > 0 {
		var ok bool
		if w.spare, ok = r.device.append(w.spare[:0], "", w.key); ok {
			device = d.strings.get(w.spare)
			w.use(r.device)
		}
	}
	named := r.name.has(partKey)
	if named {
		var ok bool
		if w.spare, ok = r.name.append(w.spare[:0], "", w.key); ok {
			w.use(r.name)
		} else {
			named = false
		}
	}
	rs := make([]reading.Reading, 0, len(w.found))
	for i := range w.found {
		f, v := w.found[i].field, w.found[i].value
		if i == timed || f.key >= 0 && w.used[f.key] {
			continue
		}
		name := f.name
		if named {
			w.spare, _ = r.name.append(w.spare[:0], f.name, w.key)
			name = d.strings.get(w.spare)
		}
		rs = append(rs, reading.Reading{
			Device: device, Name: name, Unit: f.unitOf(v), Value: v, Time: at, Flags: f.flags(v)})
	}
	return rs
}

// key finds a payload field that a name is made of.
func (w *walker) key(path string) (string, bool) {
	for _, f := range w.found {
		if f.field.path != path {
			continue
		}
		s := f.value.Raw()
		if f.value.Kind() == reading.KindBool {
			s = f.value.String()
		}
		return s, s != "" && len(s) <= MaxName
	}
	return "", false
}

// use notes that a template took its payload fields into a name.
func (w *walker) use(t template) {
	for _, p := range t {
		if p.kind != partKey {
			continue
		}
		for i, key := range w.route.rule.keys {
			if key == p.text {
				w.used[i] = true
			}
		}
	}
}
