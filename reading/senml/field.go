package senml

import (
	"strings"

	"sluice/reading"
)

// source is the value of a field, still in JSON or CBOR. Where it cannot be read
// as what is asked for, problem says why and what to do.
type source interface {
	text() (s, problem string)
	number() (literal, problem string)
	boolean() (b bool, problem string)
	data() (b []byte, problem string)
	null() bool
}

// set puts the value of the field with the given JSON label into rec. Fields
// that are not known are skipped, unless their name says that they must be
// understood (RFC 8428, 4.4).
func set[V source](r *resolver, rec *record, label string, v V) error {
	var problem string
	text := func() *string {
		var s string
		s, problem = v.text()
		return &s
	}
	switch label {
	case "bver":
		rec.baseVersion, problem = v.number()
	case "bn":
		rec.baseName = text()
	case "bt":
		rec.baseTime, problem = v.number()
	case "bu":
		rec.baseUnit = text()
	case "bv":
		rec.baseValue, problem = v.number()
	case "bs":
		rec.baseSum, problem = v.number()
	case "n":
		rec.name = text()
	case "u":
		rec.unit = text()
	case "t":
		rec.time, problem = v.number()
	case "ut":
		rec.update, problem = v.number()
	case "s":
		rec.sum, problem = v.number()
	case "v":
		rec.values++
		if v.null() {
			break
		}
		var literal string
		if literal, problem = v.number(); problem == "" {
			rec.number = true
			rec.value, _ = reading.Number(literal)
		}
	case "vs":
		rec.values++
		rec.value = reading.Text(*text())
	case "vb":
		rec.values++
		var b bool
		b, problem = v.boolean()
		rec.value = reading.Bool(b)
	case "vd":
		rec.values++
		var b []byte
		b, problem = v.data()
		rec.value = reading.Bytes(b)
	default:
		if strings.HasSuffix(label, "_") {
			problem = `is not known, and its "_" says that it must be: leave it out`
		}
	}
	if problem != "" {
		return r.fault(label, problem)
	}
	return nil
}
