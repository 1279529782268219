package reading

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// Encoder encodes batches and reuses its memory between them. It must not be
// used by two goroutines at once. The zero Encoder is ready.
type Encoder struct {
	strings  map[string]uint32
	measures map[measure]uint32
	pairs    map[uint64]uint32 // device's string and measure, to series

	ofMeasure []number // the last number of each measure
	series    []track

	// the columns, put together at the end
	stringColumn, measureColumn, seriesColumn []byte
	rowColumn, timeColumn                     []byte
	markColumn, clockColumn                   []byte
	controls, data, refs                      []byte
}

type measure struct{ name, unit string }

// track is what the encoder remembers of one series.
type track struct {
	device        string
	measure       measure
	deviceString  uint32
	measureNumber uint32
	next          int // the series that followed last time
	last          number
	started       bool // last is set
}

// keepTables is how many entries the tables may have to be emptied and used
// again. Emptying costs by their largest size ever, which one big batch should
// not leave to all small ones.
const keepTables = 4096

func (e *Encoder) reset() {
	if e.strings == nil || len(e.strings) > keepTables {
		e.strings = make(map[string]uint32)
	}
	if e.measures == nil || len(e.measures) > keepTables {
		e.measures = make(map[measure]uint32)
	}
	if e.pairs == nil || len(e.pairs) > keepTables {
		e.pairs = make(map[uint64]uint32)
	}
	clear(e.strings)
	clear(e.measures)
	clear(e.pairs)
	clear(e.series) // let go of the strings
	e.series = e.series[:0]
	e.ofMeasure = e.ofMeasure[:0]
	for _, c := range []*[]byte{
		&e.stringColumn, &e.measureColumn, &e.seriesColumn, &e.rowColumn, &e.timeColumn,
		&e.markColumn, &e.clockColumn, &e.controls, &e.data, &e.refs,
	} {
		*c = (*c)[:0]
	}
}

// Append appends the encoding of rs to dst. It panics if rs has more than
// MaxBatch readings.
func (e *Encoder) Append(dst []byte, rs []Reading) []byte {
	if len(rs) > MaxBatch {
		panic(fmt.Sprintf("reading: batch of %d readings, the most is %d", len(rs), MaxBatch))
	}
	e.reset()
	e.appendRows(rs)
	e.appendTimes(rs)
	content := e.appendMarks(rs) | e.appendClock(rs)

	dst = append(dst, version, content)
	dst = binary.AppendUvarint(dst, uint64(len(rs)))
	dst = binary.AppendUvarint(dst, uint64(len(e.strings)))
	dst = append(dst, e.stringColumn...)
	dst = binary.AppendUvarint(dst, uint64(len(e.measures)))
	dst = append(dst, e.measureColumn...)
	dst = binary.AppendUvarint(dst, uint64(len(e.series)))
	dst = append(dst, e.seriesColumn...)
	dst = append(dst, e.rowColumn...)
	dst = append(dst, e.timeColumn...)
	dst = append(dst, e.markColumn...)
	dst = append(dst, e.clockColumn...)
	dst = append(dst, e.controls...)
	dst = append(dst, e.data...)
	return append(dst, e.refs...)
}

// appendRows fills the tables, the rows and the values.
func (e *Encoder) appendRows(rs []Reading) {
	var (
		expected        int
		distance        int64
		run             int
		previous        = -1
		newFrom, newRun int // the run of new series
	)
	for i := range rs {
		r := &rs[i]
		known := len(e.series)
		s := e.find(r, expected)
		if s == known {
			t := &e.series[s]
			if newRun > 0 {
				before := &e.series[s-1]
				if t.deviceString == before.deviceString && t.measureNumber == before.measureNumber+1 {
					newRun++
				} else {
					e.appendSeries(newFrom, newRun)
					newFrom, newRun = s, 1
				}
			} else {
				newFrom, newRun = s, 1
			}
		}
		if s == expected && run > 0 {
			run++
		} else {
			if run > 0 {
				e.rowColumn = appendRun(binary.AppendUvarint(e.rowColumn, zigzag(distance)), run)
			}
			distance, run = int64(s-expected), 1
			if previous >= 0 {
				e.series[previous].next = s
			}
		}
		previous, expected = s, e.series[s].next
		e.appendValue(&r.Value, &e.series[s])
	}
	if run > 0 {
		e.rowColumn = appendRun(binary.AppendUvarint(e.rowColumn, zigzag(distance)), run)
	}
	if newRun > 0 {
		e.appendSeries(newFrom, newRun)
	}
}

func appendRun(dst []byte, run int) []byte { return binary.AppendUvarint(dst, uint64(run-1)) }

func (e *Encoder) appendSeries(from, run int) {
	t := &e.series[from]
	var before uint32
	if from > 0 {
		before = e.series[from-1].deviceString
	}
	c := binary.AppendUvarint(e.seriesColumn, zigzag(int64(t.deviceString)-int64(before)))
	c = binary.AppendUvarint(c, uint64(t.measureNumber))
	e.seriesColumn = appendRun(c, run)
}

// find returns the number of r's series, which it adds if it is new.
func (e *Encoder) find(r *Reading, expected int) int {
	if expected < len(e.series) {
		t := &e.series[expected]
		if t.device == r.Device && t.measure.name == r.Name && t.measure.unit == r.Unit {
			return expected
		}
	}
	device := e.stringNumber(r.Device)
	m := measure{r.Name, r.Unit}
	which, ok := e.measures[m]
	if !ok {
		which = uint32(len(e.measures))
		e.measures[m] = which
		e.measureColumn = binary.AppendUvarint(e.measureColumn, uint64(e.stringNumber(m.name)))
		e.measureColumn = binary.AppendUvarint(e.measureColumn, uint64(e.stringNumber(m.unit)))
		e.ofMeasure = append(e.ofMeasure, number{})
	}
	pair := uint64(device)<<32 | uint64(which)
	if s, ok := e.pairs[pair]; ok {
		return int(s)
	}
	s := len(e.series)
	e.pairs[pair] = uint32(s)
	e.series = append(e.series, track{
		device: r.Device, measure: m, deviceString: device, measureNumber: which, next: s + 1,
	})
	return s
}

func (e *Encoder) stringNumber(s string) uint32 {
	n, ok := e.strings[s]
	if !ok {
		n = uint32(len(e.strings))
		e.strings[s] = n
		e.stringColumn = append(binary.AppendUvarint(e.stringColumn, uint64(len(s))), s...)
	}
	return n
}

func (e *Encoder) appendValue(v *Value, t *track) {
	control := byte(controlNull)
	switch v.kind {
	case KindBool:
		control = controlFalse
		if v.text != "" {
			control = controlTrue
		}
	case KindNumber:
		if n, ok := parseNumber(v.text); ok {
			last := t.last
			if !t.started {
				last = e.ofMeasure[t.measureNumber]
			}
			u := zigzag(n.mantissa - last.expect(n.fraction))
			size := (bits.Len64(u) + 7) / 8
			e.controls = append(e.controls, byte(size*fractions+n.fraction))
			for ; size > 0; size-- {
				e.data = append(e.data, byte(u))
				u >>= 8
			}
			t.last, t.started, e.ofMeasure[t.measureNumber] = n, true, n
			return
		}
		control = controlLiteral
	case KindText:
		control = controlText
	case KindBytes:
		control = controlBytes
	}
	e.controls = append(e.controls, control)
	if control >= controlLiteral {
		e.refs = binary.AppendUvarint(e.refs, uint64(e.stringNumber(v.text)))
	}
}

func (e *Encoder) appendTimes(rs []Reading) {
	if len(rs) == 0 {
		return
	}
	unit := len(units) - 1
	for i := range rs {
		if unit > 0 && (i == 0 || rs[i].Time.Wall != rs[i-1].Time.Wall) {
			unit = coarsest(unit, rs[i].Time.Wall)
		}
	}
	c := append(e.timeColumn, byte(unit))
	var before int64
	for i := 0; i < len(rs); {
		wall, run := rs[i].Time.Wall, 1
		for i+run < len(rs) && rs[i+run].Time.Wall == wall {
			run++
		}
		now := wall / units[unit]
		c = appendRun(binary.AppendUvarint(c, zigzag(now-before)), run)
		before = now
		i += run
	}
	e.timeColumn = c
}

func mark(r *Reading) uint64 { return uint64(r.Time.Quality)<<8 | uint64(r.Flags) }

func (e *Encoder) appendMarks(rs []Reading) (content byte) {
	for i := range rs {
		if mark(&rs[i]) != 0 {
			content |= hasMarks
		}
		if rs[i].Time.Quality == Unsynchronised {
			content |= hasUnsynchronised
		}
	}
	if content == 0 {
		return 0
	}
	c := e.markColumn
	for i := 0; i < len(rs); {
		m, run := mark(&rs[i]), 1
		for i+run < len(rs) && mark(&rs[i+run]) == m {
			run++
		}
		c = appendRun(binary.AppendUvarint(c, m), run)
		i += run
	}
	e.markColumn = c
	return content
}

func (e *Encoder) appendClock(rs []Reading) (content byte) {
	unit := len(units) - 1
	for i := range rs {
		t := &rs[i].Time
		if t.Boot != 0 || t.Mono != 0 {
			content = hasClock
			unit = coarsest(unit, t.Mono)
		}
	}
	if content == 0 {
		return 0
	}
	c := append(e.clockColumn, byte(unit))
	var boot uint64
	var before int64
	for i := 0; i < len(rs); {
		t, run := &rs[i].Time, 1
		for i+run < len(rs) && rs[i+run].Time.Boot == t.Boot && rs[i+run].Time.Mono == t.Mono {
			run++
		}
		now := t.Mono / units[unit]
		c = binary.AppendUvarint(c, t.Boot^boot)
		c = appendRun(binary.AppendUvarint(c, zigzag(now-before)), run)
		boot, before = t.Boot, now
		i += run
	}
	e.clockColumn = c
	return content
}
