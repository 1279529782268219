package reading

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
)

// The encoding of a batch, version 1, as it is stored and carried. Varints are
// those of encoding/binary; "zigzag" maps signed numbers to unsigned ones. Equal
// neighbours are kept as runs, each with its length minus one.
//
//	version   1 byte
//	content   1 byte   which optional columns follow, and hasUnsynchronised
//	count     uvarint  how many readings
//	strings   uvarint n, then n of (uvarint length, bytes)
//	measures  uvarint n, then n of (string of name, string of unit)
//	series    uvarint n, then runs of (zigzag step of the device's string,
//	          first measure, run): one device, consecutive measures
//	rows      runs of (zigzag distance from the expected series, run); expected
//	          is what followed the same series last time, else the next series
//	times     unit, zigzag step in that unit, run
//	marks     (quality*256 + flags, run), if any is not zero
//	clock     unit, (boot XOR previous boot, zigzag step of mono, run), if any
//	          is not zero
//	controls  1 byte a reading, below
//	data      little-endian bytes of the numbers, as many as the controls say
//	refs      uvarint string of each literal, text and bytes value
//
// A number written as plain decimal digits is a mantissa and its count of
// fraction digits; what is kept is the zigzag difference from the previous
// number of the same series, or of the same measure if the series is new,
// brought to the same count of fraction digits. Its control byte is bytes*27 +
// fraction digits. Digits and length share one byte, and all control bytes stand
// together, because a general compressor then finds the pattern that devices of
// one kind repeat; this was the smallest of six layouts tried on real data. A
// number that would not come back digit by digit this way ("1e5", "-0", 400
// digits) is kept as a string.
const (
	version = 1

	hasMarks          = 1 << 0
	hasClock          = 1 << 1
	hasUnsynchronised = 1 << 2
	contentMask       = hasMarks | hasClock | hasUnsynchronised

	maxBytes    = 8  // of a number's difference
	fractions   = 27 // counts of fraction digits that a control byte can say
	maxFraction = fractions - 1

	controlNull    = (maxBytes + 1) * fractions // 243
	controlFalse   = controlNull + 1
	controlTrue    = controlNull + 2
	controlLiteral = controlNull + 3
	controlText    = controlNull + 4
	controlBytes   = controlNull + 5
)

// MaxBatch is how many readings one batch holds at most.
const MaxBatch = 65535

// ErrDamaged is returned by the decoder, wrapped with what is wrong, for bytes
// that AppendBatch cannot have written.
var ErrDamaged = errors.New("batch damaged")

func damaged(what string) error { return fmt.Errorf("decode batch: %s: %w", what, ErrDamaged) }

var (
	encoders = sync.Pool{New: func() any { return new(Encoder) }}
	decoders = sync.Pool{New: func() any { return new(Decoder) }}
)

// AppendBatch appends the encoding of rs to dst. It panics if rs has more than
// MaxBatch readings.
func AppendBatch(dst []byte, rs []Reading) []byte {
	e := encoders.Get().(*Encoder)
	dst = e.Append(dst, rs)
	encoders.Put(e)
	return dst
}

// DecodeBatch returns the readings of an encoded batch. It keeps no reference to
// b. The error wraps ErrDamaged.
func DecodeBatch(b []byte) ([]Reading, error) {
	d := decoders.Get().(*Decoder)
	rs, err := d.Decode(nil, b)
	decoders.Put(d)
	return rs, err
}

// BatchInfo reads only the header of an encoded batch: how many readings there
// are, and whether the time of any is Unsynchronised.
func BatchInfo(b []byte) (count int, unsynchronised bool, err error) {
	count, content, _, err := header(b)
	return count, content&hasUnsynchronised != 0, err
}

func header(b []byte) (count int, content byte, size int, err error) {
	if len(b) < 3 {
		return 0, 0, 0, damaged("header cut short")
	}
	if b[0] != version {
		return 0, 0, 0, fmt.Errorf("decode batch: version %d is unknown, %d is read: %w", b[0], version, ErrDamaged)
	}
	if b[1]&^contentMask != 0 {
		return 0, 0, 0, damaged("unknown columns")
	}
	n, w := binary.Uvarint(b[2:])
	// Every reading has a control byte, so the count is bounded by the input.
	if w <= 0 || n > MaxBatch || n > uint64(len(b)) {
		return 0, 0, 0, damaged("count")
	}
	return int(n), b[1], 2 + w, nil
}

// units are the steps in which times are kept, in nanoseconds.
var units = [...]int64{1, 1e3, 1e6, 1e9}

// coarsest lowers unit, an index of units, until it divides ns.
func coarsest(unit int, ns int64) int {
	for unit > 0 && ns%units[unit] != 0 {
		unit--
	}
	return unit
}

var powers = [...]int64{
	1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14,
	1e15, 1e16, 1e17, 1e18,
}

// number is a decimal number: mantissa / 10^fraction.
type number struct {
	mantissa int64
	fraction int // 0 to maxFraction
}

// expect is the mantissa that n would have with the given count of fraction
// digits. It only has to be the same in encoder and decoder, so it may wrap.
func (n number) expect(fraction int) int64 {
	d := fraction - n.fraction
	switch {
	case d == 0:
		return n.mantissa
	case d > 0 && d < len(powers):
		return n.mantissa * powers[d]
	case d < 0 && -d < len(powers):
		return n.mantissa / powers[-d]
	}
	return 0
}

// parseNumber returns literal, which follows the number grammar, as a number
// that append writes back byte for byte; ok is false if there is none.
func parseNumber(literal string) (n number, ok bool) {
	i := 0
	negative := literal[0] == '-'
	if negative {
		i = 1
	}
	point := len(literal) - 1
	var m int64
	for ; i < len(literal); i++ {
		c := literal[i] - '0'
		if c > 9 {
			if literal[i] != '.' {
				return number{}, false
			}
			point = i
			continue
		}
		if m > (math.MaxInt64-9)/10 {
			return number{}, false
		}
		m = 10*m + int64(c)
	}
	if negative {
		if m == 0 {
			return number{}, false
		}
		m = -m
	}
	n = number{mantissa: m, fraction: len(literal) - 1 - point}
	return n, n.fraction <= maxFraction
}

// append writes the number's literal.
func (n number) append(dst []byte) []byte {
	u := uint64(n.mantissa)
	if n.mantissa < 0 {
		dst = append(dst, '-')
		u = -u
	}
	var buf [20 + maxFraction]byte
	i := len(buf)
	for left := n.fraction; ; {
		q := u / 10
		i--
		buf[i] = byte('0' + u - 10*q)
		u = q
		if left--; left == 0 {
			i--
			buf[i] = '.'
		} else if left < 0 && u == 0 {
			break
		}
	}
	return append(dst, buf[i:]...)
}

func zigzag(i int64) uint64   { return uint64(i<<1) ^ uint64(i>>63) }
func unzigzag(u uint64) int64 { return int64(u>>1) ^ -int64(u&1) }
