package reading

import (
	"encoding/binary"
	"math"
	"slices"
	"unicode/utf8"
)

// Decoder decodes batches and reuses its memory between them. It must not be
// used by two goroutines at once. The zero Decoder is ready.
type Decoder struct {
	strings   []string
	measures  []measure
	ofMeasure []number
	series    []trail
	rows      []uint32 // the series of each reading
	literals  []byte   // the numbers, written out
	spans     []span   // where in literals each reading's number is
}

// trail is what the decoder remembers of one series.
type trail struct {
	device  string
	measure uint32
	next    int
	last    number
	span    span // the literal of last, if there was one
}

type span struct{ from, to uint32 }

// input is what is left of the bytes to decode. After the first thing that
// cannot be read, bad is set and everything reads as zero.
type input struct {
	b   []byte
	bad bool
}

func (in *input) uvarint() uint64 {
	if len(in.b) > 0 && in.b[0] < 0x80 {
		u := uint64(in.b[0])
		in.b = in.b[1:]
		return u
	}
	u, n := binary.Uvarint(in.b)
	if n <= 0 {
		in.bad = true
		return 0
	}
	in.b = in.b[n:]
	return u
}

// below returns a uvarint that must be less than limit.
func (in *input) below(limit int) int {
	u := in.uvarint()
	if u >= uint64(limit) {
		in.bad = true
		return 0
	}
	return int(u)
}

func (in *input) signed() int64 { return unzigzag(in.uvarint()) }

func (in *input) take(n int) []byte {
	if n > len(in.b) {
		in.bad = true
		return nil
	}
	b := in.b[:n]
	in.b = in.b[n:]
	return b
}

// unit reads the unit of a column of times, in nanoseconds.
func (in *input) unit() int64 {
	if b := in.take(1); b != nil && int(b[0]) < len(units) {
		return units[b[0]]
	}
	in.bad = true
	return 1
}

// run reads the length of a run of which at most left items are to come.
func (in *input) run(left int) int { return in.below(left) + 1 }

// Decode appends the readings of the encoded batch b to dst. It keeps no
// reference to b; all strings of one batch share memory. The error wraps
// ErrDamaged, and dst is then returned as it was.
func (d *Decoder) Decode(dst []Reading, b []byte) ([]Reading, error) {
	count, content, size, err := header(b)
	if err != nil {
		return dst, err
	}
	in := &input{b: b[size:]}
	if what := d.readTables(in, count); what != "" {
		return dst, damaged(what)
	}
	if !d.readRows(in, count) {
		return dst, damaged("rows")
	}
	start := len(dst)
	grown := slices.Grow(dst, count)[:start+count]
	rs := grown[start:]
	switch {
	case !readTimes(in, rs):
		return dst, damaged("times")
	case !readMarks(in, rs, content):
		return dst, damaged("quality and flags")
	case !readClock(in, rs, content):
		return dst, damaged("boot and monotonic times")
	case !d.readValues(in, rs):
		return dst, damaged("values")
	case len(in.b) > 0:
		return dst, damaged("bytes after its end")
	}
	return grown, nil
}

// readTables reads strings, measures and series, and returns what is wrong.
func (d *Decoder) readTables(in *input, count int) string {
	n := in.below(len(in.b) + 1)
	column := in.b
	d.spans = d.spans[:0]
	for range n {
		size := in.below(len(in.b) + 1)
		from := len(column) - len(in.b)
		if in.take(size); in.bad {
			return "strings"
		}
		d.spans = append(d.spans, span{uint32(from), uint32(from + size)})
	}
	all := string(column[:len(column)-len(in.b)]) // one copy serves all
	clear(d.strings)
	d.strings = d.strings[:0]
	for _, s := range d.spans {
		d.strings = append(d.strings, all[s.from:s.to])
	}
	n = in.below(count + 1)
	d.measures, d.ofMeasure = d.measures[:0], d.ofMeasure[:0]
	for range n {
		name, unit := in.below(len(d.strings)), in.below(len(d.strings))
		if in.bad {
			return "measures"
		}
		d.measures = append(d.measures, measure{d.strings[name], d.strings[unit]})
		d.ofMeasure = append(d.ofMeasure, number{})
	}
	n = in.below(count + 1)
	d.series = d.series[:0]
	var device int64
	for len(d.series) < n {
		device += in.signed()
		first := in.below(len(d.measures))
		run := in.run(n - len(d.series))
		if in.bad || device < 0 || device >= int64(len(d.strings)) || run > len(d.measures)-first {
			return "series"
		}
		for m := first; m < first+run; m++ {
			d.series = append(d.series, trail{
				device: d.strings[device], measure: uint32(m), next: len(d.series) + 1,
			})
		}
	}
	if in.bad {
		return "tables"
	}
	return ""
}

func (d *Decoder) readRows(in *input, count int) bool {
	d.rows = slices.Grow(d.rows[:0], count)
	expected, previous := 0, -1
	for len(d.rows) < count {
		s := int64(expected) + in.signed()
		run := in.run(count - len(d.rows))
		if in.bad || s < 0 || s >= int64(len(d.series)) {
			return false
		}
		if previous >= 0 {
			d.series[previous].next = int(s)
		}
		for expected = int(s); run > 0; run-- {
			if expected >= len(d.series) {
				return false
			}
			d.rows = append(d.rows, uint32(expected))
			previous, expected = expected, d.series[expected].next
		}
	}
	return true
}

func readTimes(in *input, rs []Reading) bool {
	if len(rs) == 0 {
		return true
	}
	unit := in.unit()
	var now int64
	for i := 0; i < len(rs); {
		now += in.signed()
		run := in.run(len(rs) - i)
		if in.bad || now > math.MaxInt64/unit || now < math.MinInt64/unit {
			return false
		}
		for range run {
			rs[i].Time = Time{Wall: now * unit}
			i++
		}
	}
	return true
}

func readMarks(in *input, rs []Reading, content byte) bool {
	unsynchronised := false
	for i := 0; i < len(rs); {
		m, run := uint64(0), len(rs)
		if content&hasMarks != 0 {
			m = in.uvarint()
			run = in.run(len(rs) - i)
		}
		quality := Quality(m >> 8)
		if in.bad || m>>8 > uint64(Unsynchronised) {
			return false
		}
		unsynchronised = unsynchronised || quality == Unsynchronised
		for range run {
			rs[i].Time.Quality, rs[i].Flags = quality, Flags(m)
			i++
		}
	}
	// The header's word is believed without decoding, so it has to be true.
	return unsynchronised == (content&hasUnsynchronised != 0)
}

func readClock(in *input, rs []Reading, content byte) bool {
	if content&hasClock == 0 {
		return true
	}
	unit := in.unit()
	var boot uint64
	var now int64
	for i := 0; i < len(rs); {
		boot ^= in.uvarint()
		now += in.signed()
		run := in.run(len(rs) - i)
		if in.bad || now > math.MaxInt64/unit || now < math.MinInt64/unit {
			return false
		}
		for range run {
			rs[i].Time.Boot, rs[i].Time.Mono = boot, now*unit
			i++
		}
	}
	return !in.bad
}

func (d *Decoder) readValues(in *input, rs []Reading) bool {
	controls := in.take(len(rs))
	size := 0
	for _, c := range controls {
		if c < controlNull {
			size += int(c) / fractions
		}
	}
	data := in.take(size)
	if in.bad {
		return false
	}
	d.literals = d.literals[:0]
	d.spans = slices.Grow(d.spans[:0], len(rs))[:len(rs)]
	for i, c := range controls {
		t := &d.series[d.rows[i]]
		m := &d.measures[t.measure]
		r := &rs[i]
		r.Device, r.Name, r.Unit = t.device, m.name, m.unit
		if c < controlNull {
			n := int(c) / fractions
			d.readNumber(t, int(c)%fractions, data[:n])
			data = data[n:]
			d.spans[i] = t.span
			r.Value = Value{kind: KindNumber}
			continue
		}
		switch c {
		case controlNull:
			r.Value = Value{}
		case controlFalse, controlTrue:
			r.Value = Bool(c == controlTrue)
		case controlLiteral, controlText, controlBytes:
			n := in.below(len(d.strings))
			if in.bad {
				return false
			}
			s := d.strings[n]
			switch {
			case c == controlBytes:
				r.Value = Value{kind: KindBytes, text: s}
			case c == controlText && utf8.ValidString(s):
				r.Value = Value{kind: KindText, text: s}
			case c == controlLiteral && IsNumber(s):
				r.Value = Value{kind: KindNumber, text: s}
			default:
				return false
			}
		default:
			return false
		}
	}
	all := string(d.literals)
	for i, c := range controls {
		if c < controlNull {
			rs[i].Value.text = all[d.spans[i].from:d.spans[i].to]
		}
	}
	return true
}

// readNumber makes t.span the literal of the series' next number.
func (d *Decoder) readNumber(t *trail, fraction int, data []byte) {
	last := t.last
	if t.span.to == 0 { // its first number
		last = d.ofMeasure[t.measure]
	} else if len(data) == 0 && fraction == last.fraction {
		d.ofMeasure[t.measure] = last
		return // the same again
	}
	var u uint64
	for i, b := range data {
		u |= uint64(b) << (8 * i)
	}
	n := number{mantissa: last.expect(fraction) + unzigzag(u), fraction: fraction}
	from := len(d.literals)
	d.literals = n.append(d.literals)
	t.last, t.span = n, span{uint32(from), uint32(len(d.literals))}
	d.ofMeasure[t.measure] = n
}
