package reading

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// Kind says what a Value is.
type Kind uint8

// The kinds of value a sensor can report.
const (
	KindNull   Kind = iota // the sensor said that it has no value
	KindBool               // true or false
	KindNumber             // a decimal number, kept digit by digit as it was written
	KindText               // valid UTF-8
	KindBytes              // anything else
)

// Value is one exact measured value. The zero Value is null.
//
// A number is its literal (the number grammar of RFC 8259): "23.50" stays
// "23.50", and integers of any size keep every digit. Nothing is ever turned
// into a float.
type Value struct {
	kind Kind
	text string // the literal, the text, the bytes; "1" for true
}

// Bool returns a boolean value.
func Bool(b bool) Value {
	if b {
		return Value{kind: KindBool, text: "1"}
	}
	return Value{kind: KindBool}
}

// Int returns a whole number.
func Int(i int64) Value { return Value{kind: KindNumber, text: strconv.FormatInt(i, 10)} }

// Number returns the number written as literal, or an error when literal does
// not follow the number grammar of RFC 8259.
func Number(literal string) (Value, error) {
	if !IsNumber(literal) {
		return Value{}, fmt.Errorf("number %q: not a decimal number", literal)
	}
	return Value{kind: KindNumber, text: literal}, nil
}

// Text returns a text value, or bytes if s is not valid UTF-8.
func Text(s string) Value {
	if !utf8.ValidString(s) {
		return Value{kind: KindBytes, text: s}
	}
	return Value{kind: KindText, text: s}
}

// Bytes returns a value of uninterpreted bytes. It copies b.
func Bytes(b []byte) Value { return Value{kind: KindBytes, text: string(b)} }

// Kind says what the value is.
func (v Value) Kind() Kind { return v.kind }

// IsTrue reports whether the value is the boolean true.
func (v Value) IsTrue() bool { return v.kind == KindBool && v.text == "1" }

// Raw returns a number's literal, a text, or bytes as a string; it is empty for
// null and of no use for booleans.
func (v Value) Raw() string { return v.text }

// String shows the value to a person. Bytes are shown as base64url without
// padding, as RFC 8428 writes them.
func (v Value) String() string {
	switch v.kind {
	case KindNull:
		return "null"
	case KindBool:
		return strconv.FormatBool(v.IsTrue())
	case KindBytes:
		return base64.RawURLEncoding.EncodeToString([]byte(v.text))
	default:
		return v.text
	}
}

// IsNumber reports whether s is a number by the grammar of RFC 8259, section 6.
func IsNumber(s string) bool {
	i := 0
	digits := func() bool {
		start := i
		for i < len(s) && '0' <= s[i] && s[i] <= '9' {
			i++
		}
		return i > start
	}
	if i < len(s) && s[i] == '-' {
		i++
	}
	if i < len(s) && s[i] == '0' {
		i++
	} else if !digits() {
		return false
	}
	if i < len(s) && s[i] == '.' {
		i++
		if !digits() {
			return false
		}
	}
	if i < len(s) && (s[i] == 'e' || s[i] == 'E') {
		i++
		if i < len(s) && (s[i] == '+' || s[i] == '-') {
			i++
		}
		if !digits() {
			return false
		}
	}
	return i == len(s)
}
