package config

import (
	"strconv"

	"sluice/reading"
)

// Scalar is a value that may be written as text, number, true or false.
type Scalar struct {
	// Text is the value as it was written; for a number, its digits.
	Text string
	Kind ScalarKind
}

// ScalarKind says what a Scalar is.
type ScalarKind uint8

// The kinds of scalar. The zero kind means that the key is absent.
const (
	ScalarAbsent ScalarKind = iota
	ScalarText
	ScalarNumber
	ScalarBool
)

// set takes a scalar node and reports whether it is one.
func (s *Scalar) set(n *node) bool {
	switch n.kind {
	case kindText:
		*s = Scalar{n.text, ScalarText}
	case kindInteger, kindFloat:
		*s = Scalar{n.text, ScalarNumber}
	case kindBool:
		*s = Scalar{n.text, ScalarBool}
	default:
		return false
	}
	return true
}

// decimal reports whether s is a number that a reading could be compared with:
// TOML also has hexadecimal numbers, underscores and infinity.
func (s Scalar) decimal() bool {
	return s.Kind == ScalarNumber && len(s.Text) <= 64 && reading.IsNumber(s.Text)
}

// shown is s as a fault shows it.
func (s Scalar) shown() string {
	if s.Kind == ScalarText {
		return shown(s.Text)
	}
	return shown(literal(s.Text))
}

// less reports whether s is less than t, as far as float64 can tell; for numbers
// of people, who mean well, that is enough.
func (s Scalar) less(t Scalar) bool {
	// Numbers too large are infinite, which is as good.
	a, _ := strconv.ParseFloat(s.Text, 64)
	b, _ := strconv.ParseFloat(t.Text, 64)
	return a < b
}
