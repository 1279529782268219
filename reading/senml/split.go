package senml

import (
	"bytes"
	"io"
	"maps"
	"slices"

	"github.com/fxamacker/cbor/v2"
	"github.com/go-json-experiment/json/jsontext"
)

// Split cuts a pack, in JSON or CBOR as contentType says, into packs of at most
// records records and about size bytes, a record of more bytes alone. Base
// fields that reach over a cut are repeated behind it; all else stays as it was.
// A time relative to now is relative to when its part is read. The error is a
// *RecordError.
func Split(pack []byte, contentType string, records, size int) ([][]byte, error) {
	if contentType == CBOR {
		return splitCBOR(pack, records, size)
	}
	return splitJSON(pack, records, size)
}

func splitJSON(pack []byte, records, size int) ([][]byte, error) {
	var (
		parts [][]byte
		part  []byte
		count int
		bases = map[string]jsontext.Value{} // in force, by label
	)
	d := &jsonDecoder{in: jsontext.NewDecoder(bytes.NewBuffer(pack))}
	if t, err := d.in.ReadToken(); err != nil || t.Kind() != '[' {
		return nil, notArray()
	}
	for d.in.PeekKind() != ']' {
		raw, err := d.in.ReadValue()
		if err != nil {
			return nil, d.syntax(err)
		}
		own, err := d.bases(raw)
		if err != nil {
			return nil, err
		}
		if count > 0 && (count == records || len(part)+len(raw) > size) {
			parts = append(parts, append(part, ']'))
			part, count = nil, 0
		}
		if count == 0 {
			part = append(part, '[', '{')
			for _, label := range slices.Sorted(maps.Keys(bases)) {
				// A new base name ends what the last one said.
				if _, again := own[label]; again || label == "bdevice" && own["bn"] != nil {
					continue
				}
				part, _ = jsontext.AppendQuote(part, label)
				part = append(append(append(part, ':'), bases[label]...), ',')
			}
			rest := bytes.TrimLeft(raw[1:], " \t\r\n")
			if rest[0] == '}' {
				part = bytes.TrimSuffix(part, []byte{','})
			}
			part = append(part, rest...)
		} else {
			part = append(append(part, ','), raw...)
		}
		count++
		d.record++
		if own["bn"] != nil {
			delete(bases, "bdevice")
		}
		for label, value := range own {
			bases[label] = value
		}
	}
	if _, err := d.in.ReadToken(); err != nil {
		return nil, d.syntax(err)
	}
	if _, err := d.in.ReadToken(); err != io.EOF {
		return nil, trailing()
	}
	if count == 0 {
		return nil, noRecord()
	}
	return append(parts, append(part, ']')), nil
}

// bases returns the base fields of a record; their labels begin with "b" (RFC
// 8428, 12.2).
func (d *jsonDecoder) bases(raw jsontext.Value) (map[string]jsontext.Value, error) {
	in := jsontext.NewDecoder(bytes.NewBuffer(raw))
	if t, err := in.ReadToken(); err != nil || t.Kind() != '{' {
		return nil, d.fault("", "is not a JSON object in { }")
	}
	var own map[string]jsontext.Value
	for in.PeekKind() != '}' {
		quoted, err := in.ReadValue()
		if err != nil {
			return nil, d.syntax(err)
		}
		label := labelOf(quoted)
		value, err := in.ReadValue()
		if err != nil {
			return nil, d.syntax(err)
		}
		if label != "" && label[0] == 'b' {
			if own == nil {
				own = map[string]jsontext.Value{}
			}
			own[label] = value.Clone()
		}
	}
	return own, nil
}

func splitCBOR(pack []byte, records, size int) ([][]byte, error) {
	r := &resolver{}
	mode, list, err := openCBOR(pack, maxSplit)
	if err != nil {
		return nil, err
	}
	encode, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		return nil, &RecordError{Record: -1, Reason: err.Error()}
	}
	var (
		parts [][]byte
		part  []cbor.RawMessage
		bytes int
		bases = map[any]cbor.RawMessage{}
	)
	flush := func() error {
		b, err := encode.Marshal(part)
		parts = append(parts, b)
		part, bytes = nil, 0
		return err
	}
	for _, raw := range list {
		var fields map[any]cbor.RawMessage
		if err := mode.Unmarshal(raw, &fields); err != nil {
			return nil, r.fault("", "is not a CBOR map of fields: "+err.Error())
		}
		if len(part) > 0 && (len(part) == records || bytes+len(raw) > size) {
			if err := flush(); err != nil {
				return nil, r.fault("", err.Error())
			}
		}
		own := map[any]cbor.RawMessage{}
		for key, value := range fields {
			if label, ok := key.(int64); ok && label < 0 {
				own[key] = value
			}
		}
		if len(part) == 0 && len(bases) > 0 {
			for key, value := range bases {
				if _, again := own[key]; !again {
					fields[key] = value
				}
			}
			if raw, err = encode.Marshal(fields); err != nil {
				return nil, r.fault("", err.Error())
			}
		}
		for key, value := range own {
			bases[key] = value
		}
		part = append(part, raw)
		bytes += len(raw)
		r.record++
	}
	if len(part) == 0 {
		return nil, noRecord()
	}
	if err := flush(); err != nil {
		return nil, r.fault("", err.Error())
	}
	return parts, nil
}
