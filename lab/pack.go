package lab

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Kind says what a record's value is.
type Kind byte

// The kinds of value in a SenML pack.
const (
	KindNull   Kind = '0'
	KindNumber Kind = 'n' // "v"
	KindText   Kind = 's' // "vs"
	KindBool   Kind = 'b' // "vb"
	KindBytes  Kind = 'd' // "vd", base64url without padding
)

// packRecord is one resolved record of a SenML pack.
type packRecord struct {
	Device, Name string
	Kind         Kind
	Value        string
	Time         string
}

var errNoPack = errors.New("not a SenML pack: no array of records")

// parsePack reads a SenML JSON pack (RFC 8428) as the collector publishes it:
// base name and base time, and values as literals. It is the oracle's own
// reader, so that a fault in the product's does not hide itself.
func parsePack(data []byte, each func(packRecord)) error {
	d := jsontext.NewDecoder(bytes.NewReader(data))
	if t, err := d.ReadToken(); err != nil || t.Kind() != '[' {
		return errNoPack
	}
	var (
		base struct{ name, time string }
		err  error
	)
	for d.PeekKind() == '{' {
		if _, err := d.ReadToken(); err != nil {
			return err
		}
		var (
			r          packRecord
			name, time string
		)
		for d.PeekKind() != '}' {
			key, err := d.ReadToken()
			if err != nil {
				return err
			}
			label := key.String()
			raw, err := d.ReadValue()
			if err != nil {
				return err
			}
			switch label {
			case "bn":
				base.name = text(raw)
			case "bt":
				base.time = string(raw)
			case "n":
				name = text(raw)
			case "t":
				time = string(raw)
			case "v":
				r.Kind, r.Value = KindNumber, string(raw)
			case "vs":
				r.Kind, r.Value = KindText, text(raw)
			case "vb":
				r.Kind, r.Value = KindBool, string(raw)
			case "vd":
				r.Kind, r.Value = KindBytes, text(raw)
			case "null":
				r.Kind, r.Value = KindNull, ""
			case "bv", "bs", "s":
				return fmt.Errorf("unexpected label %q", label)
			}
		}
		if _, err := d.ReadToken(); err != nil {
			return err
		}
		if r.Kind == 0 {
			return fmt.Errorf("record %s%s has no value", base.name, name)
		}
		full := base.name + name
		i := strings.LastIndexByte(full, '/')
		r.Device, r.Name = full[:max(i, 0)], full[i+1:]
		if r.Time, err = addDecimals(base.time, time); err != nil {
			return err
		}
		each(r)
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	if _, err := d.ReadToken(); err != io.EOF {
		return errors.New("something follows the pack")
	}
	return nil
}

func text(raw jsontext.Value) string {
	s, err := jsontext.AppendUnquote(nil, raw)
	if err != nil {
		return string(raw)
	}
	return string(s)
}
