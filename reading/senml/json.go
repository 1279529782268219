package senml

import (
	"bytes"
	"encoding/base64"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"sluice/reading"
)

// DecodeJSON returns the readings of a pack in JSON (RFC 8428, section 5). The
// error is ErrTooMany or a *RecordError.
func DecodeJSON(b []byte, o Options) ([]reading.Reading, error) {
	d := &jsonDecoder{in: jsontext.NewDecoder(bytes.NewBuffer(b))}
	d.options = o
	if d.in.PeekKind() != '[' {
		return nil, notArray()
	}
	if _, err := d.in.ReadToken(); err != nil {
		return nil, d.syntax(err)
	}
	for {
		switch d.in.PeekKind() {
		case '{':
			var rec record
			if err := d.read(&rec); err != nil {
				return nil, err
			}
			if err := d.add(&rec); err != nil {
				return nil, err
			}
			continue
		case ']', jsontext.KindInvalid:
		default:
			return nil, d.fault("", "is not a JSON object in { }")
		}
		break
	}
	if _, err := d.in.ReadToken(); err != nil {
		return nil, d.syntax(err)
	}
	if _, err := d.in.ReadToken(); err != io.EOF {
		return nil, trailing()
	}
	return d.end()
}

func notArray() error {
	return &RecordError{Record: -1, Reason: "is not a JSON array of records: begin with [ (RFC 8428, section 5)"}
}

func trailing() error {
	return &RecordError{Record: -1, Reason: "has something after its closing ]: send one array"}
}

type jsonDecoder struct {
	resolver
	in *jsontext.Decoder
}

// syntax says where the text stops being JSON. That includes invalid UTF-8, the
// same label twice, and too many levels.
func (d *jsonDecoder) syntax(err error) error {
	return d.fault("", "is not valid JSON: "+strings.TrimPrefix(err.Error(), "jsontext: "))
}

// read reads one object.
func (d *jsonDecoder) read(rec *record) error {
	if _, err := d.in.ReadToken(); err != nil {
		return d.syntax(err)
	}
	for d.in.PeekKind() != '}' {
		raw, err := d.in.ReadValue()
		if err != nil {
			return d.syntax(err)
		}
		label := labelOf(raw)
		value, err := d.in.ReadValue()
		if err != nil {
			return d.syntax(err)
		}
		known := false
		if d.options.Exact {
			if known, err = d.setExact(rec, label, value); err != nil {
				return err
			}
		}
		if !known {
			if err := set(&d.resolver, rec, label, jsonValue(value)); err != nil {
				return err
			}
		}
	}
	if _, err := d.in.ReadToken(); err != nil {
		return d.syntax(err)
	}
	return nil
}

// labelOf unquotes a label; the usual ones without allocating.
func labelOf(raw jsontext.Value) string {
	switch string(raw) {
	case `"n"`:
		return "n"
	case `"u"`:
		return "u"
	case `"v"`:
		return "v"
	case `"t"`:
		return "t"
	case `"vs"`:
		return "vs"
	case `"vb"`:
		return "vb"
	}
	label, _ := jsontext.AppendUnquote(nil, raw)
	return string(label)
}

// setExact is set for the fields that AppendJSON adds.
func (d *jsonDecoder) setExact(rec *record, label string, value jsontext.Value) (known bool, err error) {
	v := jsonValue(value)
	e := &rec.exact
	var s, problem string
	switch label {
	case "btq":
		s, problem = v.text()
		e.baseQuality = &s
	case "bdevice":
		s, problem = v.text()
		e.baseDevice = &s
	case "name":
		s, problem = v.text()
		e.name = &s
	case "tboot":
		if s, problem = v.text(); problem == "" {
			if e.boot, err = strconv.ParseUint(s, 10, 64); err != nil {
				problem = "is not the number of a boot"
			}
		}
	case "tmono":
		e.mono, problem = v.number()
	case "twall":
		e.wall, problem = v.number()
	case "null":
		if e.null = string(value) == "true"; !e.null {
			problem = "must be true"
		}
	case "flags":
		e.flags, problem = flagsOf(value)
	default:
		return false, nil
	}
	if problem != "" {
		return true, d.fault(label, problem)
	}
	return true, nil
}

func flagsOf(list jsontext.Value) (flags reading.Flags, problem string) {
	const unknown = "must be a list of invalid, retained, raw"
	in := jsontext.NewDecoder(bytes.NewBuffer(list))
	if t, err := in.ReadToken(); err != nil || t.Kind() != '[' {
		return 0, unknown
	}
	for in.PeekKind() == '"' {
		t, err := in.ReadToken()
		if err != nil {
			return 0, unknown
		}
		before := flags
		for _, f := range flagNames {
			if f.name == t.String() {
				flags |= f.flag
			}
		}
		if flags == before {
			return 0, unknown
		}
	}
	if in.PeekKind() != ']' {
		return 0, unknown
	}
	return flags, ""
}

// jsonValue is a valid JSON value.
type jsonValue jsontext.Value

func (v jsonValue) null() bool { return v[0] == 'n' }

func (v jsonValue) text() (s, problem string) {
	if v[0] != '"' {
		return "", "must be a string in quotes"
	}
	if bytes.IndexByte(v, '\\') < 0 {
		return string(v[1 : len(v)-1]), ""
	}
	b, err := jsontext.AppendUnquote(nil, v)
	if err != nil {
		return "", "has an invalid escape"
	}
	return string(b), ""
}

func (v jsonValue) number() (literal, problem string) {
	if v[0] != '-' && (v[0] < '0' || v[0] > '9') {
		return "", `must be a number without quotes; texts go into "vs", true and false into "vb"`
	}
	return string(v), ""
}

func (v jsonValue) boolean() (b bool, problem string) {
	if v[0] != 't' && v[0] != 'f' {
		return false, "must be true or false without quotes"
	}
	return v[0] == 't', ""
}

// data accepts padding, and the alphabet of plain base64 too, as senders that
// misread the RFC use them and nothing else can be meant.
func (v jsonValue) data() (b []byte, problem string) {
	s, problem := v.text()
	if problem != "" {
		return nil, problem
	}
	s = strings.NewReplacer("+", "-", "/", "_").Replace(strings.TrimRight(s, "="))
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return nil, "must be base64url without padding (RFC 4648, section 5)"
	}
	return b, ""
}
