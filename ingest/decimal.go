package ingest

import (
	"math"
	"strings"
)

// decimal is a number's literal taken apart for exact comparison, without any
// allocation: its value is 0.D × 10^point, where D are the decimal digits in
// digits, the first of which is not zero. Zero has no digits.
type decimal struct {
	negative bool
	digits   string // may contain one '.', which does not count
	point    int
}

// pointLimit bounds exponents: literals such as 1e999999999999 compare as if
// their exponent were the limit, and the sum of two bounded numbers still fits
// an int on 32-bit machines.
const pointLimit = 1_000_000_000

// parseDecimal takes apart a literal of the number grammar of RFC 8259,
// section 6; the caller has checked it.
func parseDecimal(literal string) decimal {
	var d decimal
	literal, d.negative = strings.CutPrefix(literal, "-")
	mantissa, exponent := literal, ""
	if i := strings.IndexAny(literal, "eE"); i >= 0 {
		mantissa, exponent = literal[:i], literal[i+1:]
	}
	whole := strings.IndexByte(mantissa, '.')
	if whole < 0 {
		whole = len(mantissa)
	}
	first := strings.IndexFunc(mantissa, func(r rune) bool { return '1' <= r && r <= '9' })
	if first < 0 {
		return decimal{}
	}
	d.digits = mantissa[first:]
	d.point = whole - first
	if first > whole {
		d.point++ // the dot lies before the first digit and does not count
	}
	d.point = clampPoint(d.point + parseExponent(exponent))
	return d
}

// parseExponent reads an optional exponent, saturating at pointLimit.
func parseExponent(s string) int {
	s, negative := strings.CutPrefix(s, "-")
	s = strings.TrimPrefix(s, "+")
	n := 0
	for _, c := range []byte(s) {
		n = n*10 + int(c-'0')
		if n >= pointLimit/10 {
			n = pointLimit / 10
			break
		}
	}
	if negative {
		return -n
	}
	return n
}

func clampPoint(p int) int { return max(-pointLimit, min(p, pointLimit)) }

// compare returns -1, 0 or +1 as d is less than, equal to or greater than e.
func (d decimal) compare(e decimal) int {
	switch {
	case d.sign() != e.sign():
		return sign(d.sign() - e.sign())
	case d.sign() == 0:
		return 0
	case d.point != e.point:
		return sign(d.point-e.point) * d.sign()
	}
	a, b := d.digits, e.digits
	for a != "" || b != "" {
		var x, y byte = '0', '0'
		x, a = nextDigit(a)
		y, b = nextDigit(b)
		if x != y {
			return sign(int(x)-int(y)) * d.sign()
		}
	}
	return 0
}

// scaled returns the whole part of |d| × 10^power, and false if it does not fit
// an int64.
func (d decimal) scaled(power int) (int64, bool) {
	n := d.point + power
	if d.digits == "" || n <= 0 {
		return 0, true
	}
	if n > 19 {
		return 0, false
	}
	var v uint64 // 19 digits always fit
	rest := d.digits
	for range n {
		var c byte
		c, rest = nextDigit(rest)
		v = v*10 + uint64(c-'0')
	}
	return int64(v), v <= math.MaxInt64
}

// nextDigit splits the first digit off a mantissa; behind its end are zeros.
func nextDigit(s string) (byte, string) {
	if s != "" && s[0] == '.' {
		s = s[1:]
	}
	if s == "" {
		return '0', ""
	}
	return s[0], s[1:]
}

func (d decimal) sign() int {
	switch {
	case d.digits == "":
		return 0
	case d.negative:
		return -1
	}
	return 1
}

func sign(n int) int {
	switch {
	case n < 0:
		return -1
	case n > 0:
		return 1
	}
	return 0
}
