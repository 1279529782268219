package config

import (
	"encoding"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// decoder fills configuration structs from a document. Struct fields carry
// their key as a toml tag; a second tag option, "secret", keeps the value out
// of faults.
type decoder struct {
	faults Faults
	lines  map[string]int  // of every key, table and list item, by field path
	bad    map[string]bool // fields that have their fault: they are not validated
	// sections says where a key is at home, for keys in the wrong section.
	sections map[string][]string
}

// textValue is a type that is written as text, and that can say how.
type textValue interface {
	encoding.TextUnmarshaler
	remedy() string
}

func newDecoder(root reflect.Type) *decoder {
	d := &decoder{lines: map[string]int{}, bad: map[string]bool{}, sections: map[string][]string{}}
	d.survey(root, "")
	return d
}

// survey notes every key of t with its section.
func (d *decoder) survey(t reflect.Type, section string) {
	for name, f := range fields(t) {
		d.sections[name] = append(d.sections[name], section)
		ft := t.Field(f.index).Type
		if ft.Kind() == reflect.Slice || ft.Kind() == reflect.Pointer {
			ft = ft.Elem()
		}
		if ft.Kind() == reflect.Struct {
			d.survey(ft, join(section, name))
		}
	}
}

type field struct {
	index  int
	secret bool
}

// fields are the keys of a struct type.
func fields(t reflect.Type) map[string]field {
	fs := make(map[string]field, t.NumField())
	for i := range t.NumField() {
		name, option, _ := strings.Cut(t.Field(i).Tag.Get("toml"), ",")
		if name != "" {
			fs[name] = field{index: i, secret: option == "secret"}
		}
	}
	return fs
}

// keys are the names of a struct type's keys, in the order of its fields.
func keys(t reflect.Type) []string {
	var names []string
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("toml"), ","); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// fault records a fault of a field whose value could not be used.
func (d *decoder) fault(f Fault) {
	d.faults = append(d.faults, f)
	d.bad[f.Field] = true
}

// slip records a fault whose meaning is clear all the same, so that what it
// stands for can be looked at as well.
func (d *decoder) slip(f Fault) { d.faults = append(d.faults, f) }

// table fills the struct v from n.
func (d *decoder) table(n *node, path string, v reflect.Value) {
	known := fields(v.Type())
	for _, e := range n.keys {
		at := join(path, e.name)
		f, ok := known[e.name]
		if lower := strings.ToLower(e.name); !ok && n.get(lower) == nil {
			if f, ok = known[lower]; ok {
				d.slip(Fault{Line: e.line, Field: at, Problem: "keys are written in lower case", Remedy: fmt.Sprintf("write %q", lower)})
				at = join(path, lower)
			}
		}
		if !ok {
			d.unknown(e, path, v.Type())
			continue
		}
		d.lines[at] = e.line
		d.value(e.value, at, v.Field(f.index), f.secret)
	}
}

func (d *decoder) unknown(e *entry, path string, t reflect.Type) {
	problem, remedy := "unknown key", ""
	if e.value.kind == kindTable && e.value.form != formInline || e.value.kind == kindTables {
		problem = "unknown section"
	}
	names := keys(t)
	if near := nearest(e.name, names); near != "" {
		remedy = fmt.Sprintf("did you mean %q?", near)
		// Do not also say that the key it was meant to be is missing.
		d.bad[join(path, near)] = true
	} else if home := d.sections[e.name]; len(home) > 0 {
		remedy = "it belongs into " + headerName(home[0])
	} else {
		remedy = "known here: " + strings.Join(names, ", ")
	}
	d.fault(Fault{Line: e.line, Field: join(path, e.name), Problem: problem, Remedy: remedy})
}

func headerName(section string) string {
	if section == "" {
		return "the top of the file"
	}
	return "[" + section + "]"
}

// value fills v from n.
func (d *decoder) value(n *node, path string, v reflect.Value, secret bool) {
	if n.kind == kindBroken {
		d.bad[path] = true
		return
	}
	if tv, ok := v.Addr().Interface().(textValue); ok {
		if n.kind != kindText {
			d.wrong(n, path, secret, "a text", tv.remedy())
		} else if err := tv.UnmarshalText([]byte(n.text)); err != nil {
			d.fault(Fault{Line: n.line, Field: path, Value: quoted(n, secret), Problem: err.Error(), Remedy: tv.remedy()})
		}
		return
	}
	if s, ok := v.Addr().Interface().(*Scalar); ok {
		if !s.set(n) {
			d.wrong(n, path, secret, "a text, a number, true or false", "")
		}
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		// A section that is off unless it is there.
		v.Set(reflect.New(v.Type().Elem()))
		setDefaults(v)
		d.value(n, path, v.Elem(), secret)
	case reflect.Struct:
		if n.kind != kindTable {
			d.wrong(n, path, secret, "a section", fmt.Sprintf("write [%s], alone on its line, and its keys below", plainPath(path)))
			return
		}
		d.table(n, path, v)
	case reflect.String:
		if n.kind != kindText {
			remedy := "write it in quotes"
			if n.text != "" && !secret {
				remedy = fmt.Sprintf("write %q", n.text)
			}
			d.wrong(n, path, secret, "a text", remedy)
			return
		}
		v.SetString(n.text)
	case reflect.Bool:
		if n.kind != kindBool {
			d.wrong(n, path, secret, "true or false", "write true or false, without quotes")
			return
		}
		v.SetBool(n.text == "true")
	case reflect.Int:
		i, err := strconv.ParseInt(n.text, 0, 32)
		if n.kind != kindInteger || err != nil {
			d.wrong(n, path, secret, "a whole number", "write digits only, without quotes")
			return
		}
		v.SetInt(i)
	case reflect.Map:
		d.mapping(n, path, v)
	case reflect.Slice:
		d.list(n, path, v, secret)
	}
}

// mapping fills a map, whose keys are the user's own.
func (d *decoder) mapping(n *node, path string, v reflect.Value) {
	if n.kind != kindTable {
		d.wrong(n, path, false, "a table", "write { field = ..., other = ... }")
		return
	}
	v.Set(reflect.MakeMapWithSize(v.Type(), len(n.keys)))
	for _, e := range n.keys {
		at := join(path, e.name)
		d.lines[at] = e.line
		elem := reflect.New(v.Type().Elem()).Elem()
		d.value(e.value, at, elem, false)
		v.SetMapIndex(reflect.ValueOf(e.name), elem)
	}
}

func (d *decoder) list(n *node, path string, v reflect.Value, secret bool) {
	tables := v.Type().Elem().Kind() == reflect.Struct
	if tables && n.kind == kindTable {
		d.slip(Fault{Line: n.line, Field: path, Problem: "is a list of sections", Remedy: fmt.Sprintf("write [[%s]] with two brackets", plainPath(path))})
		n = &node{kind: kindTables, line: n.line, items: []*node{n}}
	}
	if tables && n.kind != kindTables && n.kind != kindArray {
		d.wrong(n, path, secret, "a list of sections", fmt.Sprintf("write [[%s]], alone on its line, and its keys below", plainPath(path)))
		return
	}
	if !tables && n.kind != kindArray {
		remedy := "put it in brackets"
		if n.kind == kindText && !secret {
			remedy = fmt.Sprintf("write [%q]", n.text)
		}
		d.wrong(n, path, secret, "a list", remedy)
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.items), len(n.items)))
	for i, item := range n.items {
		at := index(path, i+1)
		d.lines[at] = item.line
		setDefaults(v.Index(i).Addr())
		d.value(item, at, v.Index(i), secret)
	}
}

// setDefaults fills in the defaults of a section that may be absent or repeated.
func setDefaults(v reflect.Value) {
	if s, ok := v.Interface().(interface{ setDefaults() }); ok {
		s.setDefaults()
	}
}

func (d *decoder) wrong(n *node, path string, secret bool, want, remedy string) {
	d.fault(Fault{Line: n.line, Field: path, Value: quoted(n, secret),
		Problem: fmt.Sprintf("must be %s, not %s", want, n.kind), Remedy: remedy})
}

// quoted is a scalar as it was written, for a fault.
func quoted(n *node, secret bool) string {
	switch n.kind {
	case kindTable, kindTables, kindArray, kindBroken:
		return ""
	case kindText:
		if secret {
			return ""
		}
		return shown(n.text)
	}
	if secret {
		return ""
	}
	return shown(literal(n.text))
}

// literal is shown without quotes.
type literal string

// plainPath is path without list positions, as headers are written.
func plainPath(path string) string {
	for {
		i := strings.IndexByte(path, '[')
		if i < 0 {
			return path
		}
		j := strings.IndexByte(path[i:], ']')
		if j < 0 {
			return path
		}
		path = path[:i] + path[i+j+1:]
	}
}
