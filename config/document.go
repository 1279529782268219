package config

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2/unstable"
)

// maxDocument is the size of the largest configuration that is read, in bytes.
// The parser keeps every value's position; nobody writes a megabyte by hand.
const maxDocument = 1 << 20

// kind is what stands at a place of a document.
type kind uint8

const (
	kindTable kind = iota
	kindTables
	kindArray
	kindText
	kindBool
	kindInteger
	kindFloat
	kindTime
	// kindBroken is a value that could not be read and has its fault already.
	kindBroken
)

func (k kind) String() string {
	return [...]string{"a table", "a list of tables", "a list", "a text", "true or false",
		"a whole number", "a number", "a date", "unreadable"}[k]
}

// node is a value of a document with its position.
type node struct {
	kind  kind
	line  int
	text  string // of a scalar: the text, or the literal as it was written
	items []*node
	keys  []*entry
	form  form
}

// form is how a table came to be; it decides what may still be added to it.
type form uint8

const (
	formHeader  form = iota // by its own header: keys below it, tables below it
	formImplied             // by a longer header: its own header may follow
	formDotted              // by a dotted key: further dotted keys may follow
	formInline              // in braces: complete
)

// entry is a key of a table.
type entry struct {
	name  string
	line  int
	value *node
}

func (n *node) get(name string) *entry {
	for _, e := range n.keys {
		if e.name == name {
			return e
		}
	}
	return nil
}

// document builds the tree of one TOML file and collects what is wrong with its
// form. It goes on after a fault, so that all of them are seen at once.
type document struct {
	data   []byte
	parser unstable.Parser
	base   int // where in data the parser was started last
	root   *node
	faults Faults

	// line and offset of the last look-up: look-ups go forward.
	lineNo, lineAt int
}

// parse reads TOML 1.0 with or without a byte-order mark and with either line
// ending. Without text to read, the tree is nil.
func parse(data []byte) (*node, Faults) {
	d := &document{root: &node{kind: kindTable, line: 1}, lineNo: 1}
	if len(data) > maxDocument {
		return nil, Faults{{Problem: fmt.Sprintf("file has %d bytes, at most %d are read", len(data), maxDocument),
			Remedy: "give the file of a sluice configuration"}}
	}
	d.data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	for i := 0; i < len(d.data); {
		r, n := utf8.DecodeRune(d.data[i:])
		if r == utf8.RuneError && n == 1 || r == 0 {
			return nil, Faults{{Line: d.line(i), Problem: "file is not UTF-8 text", Remedy: "save it as UTF-8"}}
		}
		i += n
	}
	d.build()
	return d.root, d.faults
}

func (d *document) fault(line int, field, value, problem, remedy string) {
	d.faults = append(d.faults, Fault{Line: line, Field: field, Value: value, Problem: problem, Remedy: remedy})
}

func (d *document) build() {
	table, prefix := d.root, ""
	d.parser.Reset(d.data)
	for {
		for d.parser.NextExpression() {
			switch e := d.parser.Expression(); e.Kind {
			case unstable.Table, unstable.ArrayTable:
				table, prefix = d.header(e)
			case unstable.KeyValue:
				// What follows a header that could not be used is read for
				// its form only.
				if table != nil {
					d.keyValue(table, prefix, e)
				}
			}
		}
		err := d.parser.Error()
		if err == nil {
			return
		}
		next, header := d.syntax(err, table, prefix)
		if next >= len(d.data) {
			return
		}
		if header {
			table = nil
		}
		d.base = next
		d.parser.Reset(d.data[next:])
	}
}

// syntax records a syntax error and returns where to go on: at the next line.
// The key it stands at counts as present, so that it is not said to be missing.
func (d *document) syntax(err error, table *node, prefix string) (next int, header bool) {
	offset, message := d.base, err.Error()
	var pe *unstable.ParserError
	if errors.As(err, &pe) {
		message = pe.Message
		// The highlight is a part of the parser's data; what lies behind it
		// says where.
		if o := cap(d.data) - cap(pe.Highlight); o >= d.base && o <= len(d.data) {
			offset = o
			if r, n := utf8.DecodeRune(d.data[o:]); n > 1 {
				// The parser shows the first byte of a letter as one.
				message = fmt.Sprintf("unexpected character %q", r)
			}
		}
	}
	start := bytes.LastIndexByte(d.data[:offset], '\n') + 1
	end := len(d.data)
	if i := bytes.IndexByte(d.data[offset:], '\n'); i >= 0 {
		end = offset + i + 1
	}
	text := strings.TrimSpace(string(d.data[start:min(end, len(d.data))]))
	line := d.line(offset)
	field := ""
	if key, _, ok := strings.Cut(text, "="); ok && !strings.HasPrefix(text, "[") {
		key = strings.TrimSpace(key)
		if bareKey(key) {
			field = join(prefix, key)
			if table != nil && table.get(key) == nil {
				table.keys = append(table.keys, &entry{name: key, line: line, value: &node{kind: kindBroken, line: line}})
			}
		}
	}
	d.fault(line, field, "", "not TOML: "+message, syntaxRemedy(text, message))
	return end, strings.HasPrefix(text, "[")
}

// syntaxRemedy guesses from the line what its writer meant.
func syntaxRemedy(line, message string) string {
	_, value, isKey := strings.Cut(line, "=")
	value = strings.TrimSpace(value)
	switch {
	case strings.ContainsAny(line, "\u201c\u201d\u201e\u2018\u2019"):
		return `use straight quotes: "`
	case strings.HasPrefix(line, "["):
		return "write a section as [name], an entry of a list as [[name]], alone on its line"
	case !isKey:
		return `write key = value, or put # before a comment`
	case value == "":
		return "give the key a value or remove the line"
	case value == "True" || value == "False" || value == "TRUE" || value == "FALSE" || value == "yes" || value == "no":
		return "write true or false"
	case strings.Contains(message, "escape"):
		return `write a backslash in text as \\, or use 'single quotes'`
	case !strings.ContainsAny(value, `"'[{`):
		return fmt.Sprintf("write text in quotes: %q", value)
	}
	return "check quotes, brackets and commas on this line and the one before"
}

func bareKey(s string) bool {
	for _, c := range s {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-') {
			return false
		}
	}
	return s != ""
}

// header opens the table that a [header] or [[header]] names, or returns nil
// with a fault.
func (d *document) header(e *unstable.Node) (*node, string) {
	names, line := d.names(e.Key())
	field := strings.Join(names, ".")
	n, path := d.root, ""
	for i, name := range names {
		last := i == len(names)-1
		path = join(path, name)
		have := n.get(name)
		switch {
		case have == nil:
			v := &node{kind: kindTable, line: line}
			if !last {
				v.form = formImplied
			}
			if last && e.Kind == unstable.ArrayTable {
				item := &node{kind: kindTable, line: line}
				v = &node{kind: kindTables, line: line, items: []*node{item}}
				n.keys = append(n.keys, &entry{name: name, line: line, value: v})
				return item, index(path, 1)
			}
			n.keys = append(n.keys, &entry{name: name, line: line, value: v})
			n = v
		case have.value.kind == kindTables && last && e.Kind == unstable.ArrayTable:
			item := &node{kind: kindTable, line: line}
			have.value.items = append(have.value.items, item)
			return item, index(path, len(have.value.items))
		case have.value.kind == kindTables && !last:
			path = index(path, len(have.value.items))
			n = have.value.items[len(have.value.items)-1]
		case have.value.kind == kindTable && have.value.form == formInline:
			d.fault(line, path, "", fmt.Sprintf("was completed in braces on line %d", have.line),
				"put all its keys under one header")
			return nil, ""
		case have.value.kind == kindTable && !last:
			n = have.value
		case have.value.kind == kindTable && have.value.form == formImplied && e.Kind == unstable.Table:
			have.value.form, have.value.line, have.line = formHeader, line, line
			n = have.value
		case have.value.kind == kindTable && e.Kind == unstable.Table:
			d.fault(line, field, "", fmt.Sprintf("section appears twice, first on line %d", have.line),
				"put its keys together under one header")
			return nil, ""
		case have.value.kind == kindTables:
			d.fault(line, field, "", fmt.Sprintf("is a list since line %d, and here a section", have.line),
				fmt.Sprintf("write [[%s]] each time", field))
			return nil, ""
		case have.value.kind == kindTable:
			d.fault(line, field, "", fmt.Sprintf("is a section since line %d, and here a list", have.line),
				"write one of the two forms")
			return nil, ""
		default:
			d.fault(line, field, "", fmt.Sprintf("has a value already, on line %d", have.line),
				"remove one of the two")
			return nil, ""
		}
	}
	return n, path
}

// keyValue adds one "key = value", whose key may be dotted, to table.
func (d *document) keyValue(table *node, prefix string, e *unstable.Node) {
	names, line := d.names(e.Key())
	for _, name := range names[:len(names)-1] {
		prefix = join(prefix, name)
		have := table.get(name)
		if have == nil {
			have = &entry{name: name, line: line, value: &node{kind: kindTable, line: line, form: formDotted}}
			table.keys = append(table.keys, have)
		}
		if have.value.kind != kindTable || have.value.form != formDotted {
			d.fault(line, prefix, "", fmt.Sprintf("was completed on line %d and cannot be added to with a dotted key", have.line),
				"put all its keys under one header")
			return
		}
		table = have.value
	}
	name := names[len(names)-1]
	prefix = join(prefix, name)
	if have := table.get(name); have != nil {
		d.fault(line, prefix, "", fmt.Sprintf("key appears twice, first on line %d", have.line), "remove one of the two")
		return
	}
	table.keys = append(table.keys, &entry{name: name, line: line, value: d.value(e.Value(), prefix, line)})
}

func (d *document) value(v *unstable.Node, path string, line int) *node {
	n := &node{line: line}
	switch v.Kind {
	case unstable.Array:
		n.kind = kindArray
		for it := v.Children(); it.Next(); {
			item := d.value(it.Node(), index(path, len(n.items)+1), line)
			line = item.line
			n.items = append(n.items, item)
		}
		return n
	case unstable.InlineTable:
		n.kind = kindTable
		for it := v.Children(); it.Next(); {
			d.keyValue(n, path, it.Node())
		}
		n.seal()
		return n
	case unstable.String:
		n.kind = kindText
	case unstable.Bool:
		n.kind = kindBool
	case unstable.Integer:
		n.kind = kindInteger
	case unstable.Float:
		n.kind = kindFloat
	default:
		n.kind = kindTime
	}
	n.text = string(v.Data)
	if v.Raw.Length > 0 {
		n.line = d.line(d.base + int(v.Raw.Offset))
	}
	return n
}

// seal completes an inline table: nothing can be added to it or below it.
func (n *node) seal() {
	n.form = formInline
	for _, e := range n.keys {
		if e.value.kind == kindTable {
			e.value.seal()
		}
	}
}

// names are the parts of a key and the line it stands on.
func (d *document) names(it unstable.Iterator) ([]string, int) {
	var names []string
	line := 0
	for it.Next() {
		if line == 0 {
			line = d.line(d.base + int(it.Node().Raw.Offset))
		}
		names = append(names, string(it.Node().Data))
	}
	return names, line
}

// line is the number of the line that holds the byte at offset.
func (d *document) line(offset int) int {
	if offset < d.lineAt {
		d.lineNo, d.lineAt = 1, 0
	}
	d.lineNo += bytes.Count(d.data[d.lineAt:offset], []byte{'\n'})
	d.lineAt = offset
	return d.lineNo
}

func join(prefix, name string) string {
	if prefix == "" {
		return name
	}
	return prefix + "." + name
}

func index(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }
