package senml

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"sluice/reading"
)

// record is one record of a pack as it is written. Numbers are their literals,
// empty if absent.
type record struct {
	baseVersion, baseTime, baseValue, baseSum string
	baseName, baseUnit                        *string

	name, unit        *string
	value             reading.Value
	values            int // how many value fields there were
	number            bool
	sum, time, update string

	exact exactFields
}

// exactFields are those of a collector's pack.
type exactFields struct {
	baseQuality, baseDevice, name *string
	boot                          uint64
	mono, wall                    string
	flags                         reading.Flags
	null                          bool
}

// resolver turns records into readings; it holds what base fields say until the
// next one does (RFC 8428, 4.6).
type resolver struct {
	options Options
	out     []reading.Reading
	record  int // number of the record at hand

	name, unit string
	time       int64
	value, sum string
	quality    reading.Quality
	device     *string
}

func (r *resolver) fault(field, reason string) error {
	return &RecordError{Record: r.record, Field: field, Reason: reason}
}

func (r *resolver) add(rec *record) error {
	if err := r.setBase(rec); err != nil {
		return err
	}
	out := reading.Reading{Unit: r.unit, Flags: rec.exact.flags}
	if rec.unit != nil {
		out.Unit = *rec.unit
	}
	if len(out.Unit) > maxUnit {
		return r.fault("u", fmt.Sprintf("unit has %d bytes; %d are allowed", len(out.Unit), maxUnit))
	}
	var err error
	if out.Device, out.Name, err = r.split(rec); err != nil {
		return err
	}
	if out.Time, err = r.when(rec); err != nil {
		return err
	}

	if rec.values > 1 {
		return r.fault("", "has more than one value: send one of v, vs, vb, vd, and one record for each further value")
	}
	if rec.exact.null {
		rec.value, rec.number, rec.values = reading.Value{}, false, 1
	}
	out.Value = rec.value
	valued := rec.values == 1
	if r.value != "" && (rec.number || !valued) {
		literal := r.value
		if rec.number {
			if literal, err = addLiterals(r.value, rec.value.Raw()); err != nil {
				return r.fault("v", err.Error()+" and cannot be added to the base value: send it without one")
			}
		}
		out.Value, _ = reading.Number(literal)
		valued = true
	}
	sum := rec.sum
	switch {
	case sum == "":
		sum = r.sum
	case r.sum != "":
		if sum, err = addLiterals(r.sum, sum); err != nil {
			return r.fault("s", err.Error()+" and cannot be added to the base sum: send it without one")
		}
	}
	if !valued && sum == "" {
		return r.fault("", "has no value: send one of v, vs, vb, vd or s")
	}
	if valued {
		r.out = append(r.out, out)
	}
	if sum != "" {
		out.Name += ".sum"
		if out.Unit != "" {
			out.Unit += "*s"
		}
		out.Value, _ = reading.Number(sum)
		r.out = append(r.out, out)
	}
	if len(r.out) > reading.MaxBatch {
		return ErrTooMany
	}
	r.record++
	return nil
}

// end returns all readings after the last record.
func (r *resolver) end() ([]reading.Reading, error) {
	if r.record == 0 {
		return nil, noRecord()
	}
	return r.out, nil
}

func noRecord() error {
	return &RecordError{Record: -1, Reason: "has no record: send at least one"}
}

func (r *resolver) setBase(rec *record) error {
	if v := rec.baseVersion; v != "" {
		if n, err := strconv.Atoi(v); err != nil || n < 1 || n > 10 {
			return r.fault("bver", "is "+v+"; versions up to 10 are understood (RFC 8428)")
		}
	}
	if rec.baseName != nil {
		r.name, r.device = *rec.baseName, nil
	}
	if rec.baseUnit != nil {
		r.unit = *rec.baseUnit
	}
	if rec.baseTime != "" {
		var err error
		if r.time, err = nanoseconds(rec.baseTime); err != nil {
			return r.fault("bt", err.Error())
		}
	}
	if rec.baseValue != "" {
		if r.value = rec.baseValue; len(r.value) > maxLiteral {
			return r.fault("bv", errLong.Error())
		}
	}
	if rec.baseSum != "" {
		if r.sum = rec.baseSum; len(r.sum) > maxLiteral {
			return r.fault("bs", errLong.Error())
		}
	}
	if d := rec.exact.baseDevice; d != nil {
		r.device = d
	}
	if q := rec.exact.baseQuality; q != nil {
		for i, name := range qualities {
			if *q == name {
				r.quality = reading.Quality(i)
				return nil
			}
		}
		return r.fault("btq", "is none of synchronised, device, unsynchronised")
	}
	return nil
}

// split returns the device and what it measured.
func (r *resolver) split(rec *record) (device, name string, err error) {
	if rec.name != nil {
		name = *rec.name
	}
	field := "n"
	if name == "" {
		field = "bn"
	}
	first := r.name
	if first == "" {
		first = name
	}
	switch {
	case first == "":
		return "", "", r.fault("n", "is missing, and there is no base name: say what was measured")
	case !mayBegin(first[0]):
		return "", "", r.fault(field, fmt.Sprintf("name %.80q must begin with a letter or digit (RFC 8428, 4.5.1)", r.name+name))
	case len(r.name)+len(name) > maxName:
		return "", "", r.fault(field, fmt.Sprintf("name has %d bytes; %d are allowed", len(r.name)+len(name), maxName))
	case !legalBytes(r.name) || !legalBytes(name):
		return "", "", r.fault(field, fmt.Sprintf("name %.80q may only have letters, digits and - : . / _ (RFC 8428, 4.5.1)", r.name+name))
	}
	slash := strings.LastIndexByte(name, '/')
	switch {
	case slash < 0 && strings.HasSuffix(r.name, "/"):
		device = r.name[:len(r.name)-1] // the usual case shares the base name
	case slash >= 0 || strings.IndexByte(r.name, '/') >= 0:
		whole := r.name + name
		slash = strings.LastIndexByte(whole, '/')
		device, name = whole[:slash], whole[slash+1:]
	case strings.HasSuffix(r.name, ":") && name != "":
		device = r.name[:len(r.name)-1]
	default:
		device, name = r.options.Device, r.name+name
	}
	if r.device != nil {
		device = *r.device
	}
	if rec.exact.name != nil {
		name = *rec.exact.name
	}
	return device, name, nil
}

// when returns the record's time.
func (r *resolver) when(rec *record) (reading.Time, error) {
	var t int64
	if rec.time != "" {
		var err error
		if t, err = nanoseconds(rec.time); err != nil {
			return reading.Time{}, r.fault("t", err.Error())
		}
	}
	t, ok := add(r.time, t)
	if !ok {
		return reading.Time{}, r.fault("t", "is too far from the base time")
	}
	if r.options.Exact {
		return r.exactly(rec, t)
	}
	switch {
	case t == 0:
		return r.options.Now, nil
	case t >= relative:
		return reading.Time{Wall: t, Quality: reading.FromDevice}, nil
	}
	at := r.options.Now
	if at.Quality == reading.Unsynchronised {
		// The device says how long ago, which is as good as the gateway's clock.
		at.Mono += t
	} else {
		at.Quality = reading.FromDevice
	}
	if at.Wall, ok = add(at.Wall, t); !ok {
		return reading.Time{}, r.fault("t", "is too far from now")
	}
	return at, nil
}

func (r *resolver) exactly(rec *record, t int64) (reading.Time, error) {
	at := reading.Time{Wall: t, Quality: r.quality, Boot: rec.exact.boot}
	var err error
	if rec.exact.wall != "" {
		if at.Wall, err = nanoseconds(rec.exact.wall); err != nil {
			return reading.Time{}, r.fault("twall", err.Error())
		}
	}
	if rec.exact.mono != "" {
		if at.Mono, err = nanoseconds(rec.exact.mono); err != nil {
			return reading.Time{}, r.fault("tmono", err.Error())
		}
	}
	return at, nil
}

// add returns a+b, or false if that is no int64.
func add(a, b int64) (int64, bool) {
	if b > 0 && a > math.MaxInt64-b || b < 0 && a < math.MinInt64-b {
		return 0, false
	}
	return a + b, true
}
