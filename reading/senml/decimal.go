package senml

import (
	"errors"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// decimal is a number as written: mantissa and power of ten.
type decimal struct {
	negative bool
	digits   string // of the mantissa, without leading zeros; empty for 0
	exponent int
}

// Bounds of numbers that are calculated with, so that a small pack cannot ask
// for millions of digits.
const (
	maxExponent = 1000
	maxLiteral  = 1000
)

var (
	errExponent = errors.New("has an exponent beyond 1000")
	errLong     = errors.New("is longer than 1000 digits")
)

// parseDecimal splits literal, which follows the number grammar of RFC 8259.
func parseDecimal(literal string) (decimal, error) {
	var d decimal
	if len(literal) > maxLiteral {
		return d, errLong
	}
	d.negative = strings.HasPrefix(literal, "-")
	literal = strings.TrimPrefix(literal, "-")
	if i := strings.IndexAny(literal, "eE"); i >= 0 {
		e, err := strconv.Atoi(literal[i+1:])
		if err != nil || e > maxExponent || e < -maxExponent {
			return decimal{}, errExponent
		}
		d.exponent = e
		literal = literal[:i]
	}
	whole, fraction, _ := strings.Cut(literal, ".")
	d.exponent -= len(fraction)
	d.digits = strings.TrimLeft(whole+fraction, "0")
	return d, nil
}

// addLiterals returns the exact sum of two numbers, with as many fraction
// digits as the longer one has.
func addLiterals(a, b string) (string, error) {
	x, err := parseDecimal(a)
	if err != nil {
		return "", err
	}
	y, err := parseDecimal(b)
	if err != nil {
		return "", err
	}
	exponent := min(x.exponent, y.exponent)
	sum := new(big.Int).Add(x.integer(exponent), y.integer(exponent))
	return literalOf(sum, exponent), nil
}

// integer is d / 10^exponent; exponent is at most d's.
func (d decimal) integer(exponent int) *big.Int {
	i, _ := new(big.Int).SetString("0"+d.digits+strings.Repeat("0", d.exponent-exponent), 10)
	if d.negative {
		i.Neg(i)
	}
	return i
}

// literalOf writes mantissa * 10^exponent without an exponent.
func literalOf(mantissa *big.Int, exponent int) string {
	digits := new(big.Int).Abs(mantissa).String()
	if exponent >= 0 && mantissa.Sign() != 0 {
		digits += strings.Repeat("0", exponent)
	}
	if exponent < 0 {
		if missing := 1 - exponent - len(digits); missing > 0 {
			digits = strings.Repeat("0", missing) + digits
		}
		digits = digits[:len(digits)+exponent] + "." + digits[len(digits)+exponent:]
	}
	if mantissa.Sign() < 0 {
		return "-" + digits
	}
	return digits
}

// nanoseconds returns seconds in nanoseconds; what is finer is cut off.
func nanoseconds(seconds string) (int64, error) {
	d, err := parseDecimal(seconds)
	if err != nil {
		return 0, err
	}
	digits := d.digits
	if e := d.exponent + 9; e < 0 {
		digits = digits[:max(0, len(digits)+e)]
	} else if len(digits) > 0 {
		digits += strings.Repeat("0", e)
	}
	if digits == "" {
		return 0, nil
	}
	u, err := strconv.ParseUint(digits, 10, 64)
	limit := uint64(math.MaxInt64)
	if d.negative {
		limit++
	}
	if err != nil || u > limit {
		return 0, errors.New("is beyond the years 1677 to 2262; times are seconds since 1970")
	}
	if d.negative {
		u = -u
	}
	return int64(u), nil
}
