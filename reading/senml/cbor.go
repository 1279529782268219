package senml

import (
	"encoding/binary"
	"errors"
	"math"
	"math/big"
	"strconv"

	"github.com/fxamacker/cbor/v2"

	"sluice/reading"
)

// labels are the integers that stand for labels in CBOR (RFC 8428, section 6).
var labels = map[int64]string{
	-1: "bver", -2: "bn", -3: "bt", -4: "bu", -5: "bv", -6: "bs",
	0: "n", 1: "u", 2: "v", 3: "vs", 4: "vb", 5: "s", 6: "t", 7: "ut", 8: "vd",
}

// DecodeCBOR returns the readings of a pack in CBOR (RFC 8428, section 6).
// Integers, decimal fractions (RFC 8949, 3.4.4) and bignums keep their digits;
// floats become the shortest decimal that stands for them at their own width.
// The error is ErrTooMany or a *RecordError.
func DecodeCBOR(b []byte, o Options) ([]reading.Reading, error) {
	mode, records, err := openCBOR(b, reading.MaxBatch)
	if err != nil {
		return nil, err
	}
	r := &resolver{options: o}
	for _, raw := range records {
		var fields map[any]cbor.RawMessage
		if err := mode.Unmarshal(raw, &fields); err != nil {
			return nil, r.fault("", "is not a CBOR map of fields: "+err.Error())
		}
		var rec record
		for key, value := range fields {
			var label string
			switch key := key.(type) {
			case uint64:
				if key <= math.MaxInt64 {
					label = labels[int64(key)]
				}
			case int64:
				label = labels[key]
			case string:
				label = key
			default:
				return nil, r.fault("", "has a label that is neither an integer nor a text")
			}
			if err := set(r, &rec, label, cborValue{value, mode}); err != nil {
				return nil, err
			}
		}
		if err := r.add(&rec); err != nil {
			return nil, err
		}
	}
	return r.end()
}

// maxSplit is how many records a pack may have that is to be split.
const maxSplit = 1 << 24

// openCBOR returns the records of a pack of at most most of them, still
// encoded, and how they are to be decoded: bounded in every way.
func openCBOR(b []byte, most int) (cbor.DecMode, []cbor.RawMessage, error) {
	mode, err := cbor.DecOptions{
		DupMapKey:        cbor.DupMapKeyEnforcedAPF,
		MaxNestedLevels:  16,
		MaxArrayElements: most,
		MaxMapPairs:      64,
	}.DecMode()
	if err != nil {
		return nil, nil, &RecordError{Record: -1, Reason: err.Error()}
	}
	var records []cbor.RawMessage
	if err := mode.Unmarshal(b, &records); err != nil {
		if _, many := errors.AsType[*cbor.MaxArrayElementsError](err); many {
			return nil, nil, ErrTooMany
		}
		return nil, nil, &RecordError{Record: -1, Reason: "is not a CBOR array of records (RFC 8428, section 6): " + err.Error()}
	}
	return mode, records, nil
}

// cborValue is a well-formed CBOR item.
type cborValue struct {
	b    cbor.RawMessage
	mode cbor.DecMode
}

// The major types (RFC 8949, 3.1) and the simple values used.
const (
	majorUnsigned = iota
	majorNegative
	majorBytes
	majorText
	majorArray
	majorMap
	majorTag
	majorOther

	simpleFalse = 0xf4
	simpleTrue  = 0xf5
	simpleNull  = 0xf6
	float16Item = 0xf9
	float32Item = 0xfa
	float64Item = 0xfb

	tagBignum         = 2
	tagNegativeBignum = 3
	tagDecimal        = 4
)

// head returns the item's major type, its argument, and what follows both.
func (v cborValue) head() (major byte, argument uint64, rest []byte) {
	major, info := v.b[0]>>5, v.b[0]&31
	if info < 24 {
		return major, uint64(info), v.b[1:]
	}
	if info > 27 {
		return major, 0, v.b[1:] // of indefinite length
	}
	n := 1 << (info - 24)
	var buf [8]byte
	copy(buf[8-n:], v.b[1:1+n])
	return major, binary.BigEndian.Uint64(buf[:]), v.b[1+n:]
}

func (v cborValue) null() bool { return v.b[0] == simpleNull }

func (v cborValue) text() (s, problem string) {
	if v.b[0]>>5 != majorText {
		return "", "must be a text string"
	}
	if err := v.mode.Unmarshal(v.b, &s); err != nil {
		return "", "is not valid: " + err.Error()
	}
	return s, ""
}

func (v cborValue) data() (b []byte, problem string) {
	if v.b[0]>>5 != majorBytes {
		return nil, "must be a byte string"
	}
	if err := v.mode.Unmarshal(v.b, &b); err != nil {
		return nil, "is not valid: " + err.Error()
	}
	return b, ""
}

func (v cborValue) boolean() (b bool, problem string) {
	if v.b[0] != simpleTrue && v.b[0] != simpleFalse {
		return false, "must be true or false"
	}
	return v.b[0] == simpleTrue, ""
}

func (v cborValue) number() (literal, problem string) {
	const kind = `must be a number; texts go into "vs", true and false into "vb", bytes into "vd"`
	major, argument, _ := v.head()
	switch major {
	case majorUnsigned, majorNegative:
		return v.integer().String(), ""
	case majorTag:
		switch argument {
		case tagBignum, tagNegativeBignum:
			if i := v.integer(); i != nil {
				return i.String(), ""
			}
			return "", "has a bignum that is empty or beyond 1000 digits"
		case tagDecimal:
			return v.fraction()
		}
		return "", "has tag " + strconv.FormatUint(argument, 10) +
			": send an integer, a float or a decimal fraction (tag 4)"
	}
	bits, f := 64, 0.0
	switch v.b[0] {
	case float16Item:
		bits, f = 32, half(uint16(argument))
	case float32Item:
		bits, f = 32, float64(math.Float32frombits(uint32(argument)))
	case float64Item:
		f = math.Float64frombits(argument)
	default:
		return "", kind
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return "", "is not a finite number: leave the record out, or send null"
	}
	format := byte('f')
	if a := math.Abs(f); a != 0 && (a < 1e-6 || a >= 1e21) {
		format = 'e'
	}
	return strconv.FormatFloat(f, format, -1, bits), ""
}

// half is the number whose IEEE 754 half-precision bits are given.
func half(bits uint16) float64 {
	exponent, mantissa := int(bits>>10&31), float64(bits&1023)
	var f float64
	switch exponent {
	case 0:
		f = math.Ldexp(mantissa, -24)
	case 31:
		return math.NaN() // or an infinity: neither is a measurement
	default:
		f = math.Ldexp(mantissa+1024, exponent-25)
	}
	if bits>>15 != 0 {
		f = math.Copysign(f, -1)
	}
	return f
}

// integer returns an integer or bignum, or nil if it is none or too long.
func (v cborValue) integer() *big.Int {
	const longest = 415 // bytes: 1000 decimal digits
	major, argument, rest := v.head()
	i := new(big.Int)
	switch {
	case major == majorUnsigned:
		return i.SetUint64(argument)
	case major == majorNegative:
		return i.Not(i.SetUint64(argument))
	case major == majorTag && (argument == tagBignum || argument == tagNegativeBignum):
		b, problem := cborValue{rest, v.mode}.data()
		if problem != "" || len(b) == 0 || len(b) > longest {
			return nil
		}
		if i.SetBytes(b); argument == tagNegativeBignum {
			i.Not(i)
		}
		return i
	}
	return nil
}

// fraction returns a decimal fraction: tag 4 with [exponent, mantissa].
func (v cborValue) fraction() (literal, problem string) {
	_, _, rest := v.head()
	var parts []cbor.RawMessage
	if err := v.mode.Unmarshal(rest, &parts); err != nil || len(parts) != 2 {
		return "", "has a decimal fraction that is not [exponent, mantissa]"
	}
	exponent := cborValue{parts[0], v.mode}.integer()
	mantissa := cborValue{parts[1], v.mode}.integer()
	if exponent == nil || mantissa == nil {
		return "", "has a decimal fraction that is not [exponent, mantissa]"
	}
	if !exponent.IsInt64() || exponent.Int64() > maxExponent || exponent.Int64() < -maxExponent {
		return "", errExponent.Error()
	}
	return literalOf(mantissa, int(exponent.Int64())), ""
}
