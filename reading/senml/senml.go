// Package senml reads and writes sensor measurement lists (SenML, RFC 8428):
// what sink nodes push to a gateway, in JSON or CBOR, and what a collector
// publishes, in JSON.
//
// # What a pack means
//
// A record's name is its base name followed by its name (RFC 8428, 4.6), and is
// split into the device and what it measured:
//
//   - at the last "/": "kitchen/lamp/power" is power of kitchen/lamp;
//   - with no "/", after a base name that ends in ":" (as device URNs do):
//     "urn:dev:ow:10e2073a01080063:" and "voltage";
//   - else the whole name is what was measured, by the device that
//     Options.Device names.
//
// Numbers keep their digits. A base value is added exactly, in decimal. A sum
// ("s") is a reading of its own: its name ends in ".sum", and its unit, if any,
// in "*s", for it is the unit multiplied by seconds. A "v" of null, which the
// RFC does not know but sensors send, is a reading without a value.
//
// # What a collector's pack adds
//
// AppendJSON writes packs that any reader of the RFC understands. What it has no
// fields for stands in these, which other readers skip. DecodeJSON reads them
// when Options.Exact is set.
//
//	btq      how the times from this record on came about: "synchronised" (the
//	         gateway's clock on arrival; what a pack begins with), "device" (the
//	         sensor's own) or "unsynchronised" (the gateway's clock was not set)
//	tboot    with an unset clock: which boot of the gateway, as a string
//	tmono    with an unset clock: seconds since that boot
//	twall    the wall time in seconds, where "t" cannot say it because it is less
//	         than 2^28 (RFC 8428, 4.5.3); "bt" is 0 then
//	null     true: the sensor said that it has no value; "vs" is empty then
//	flags    list of "invalid", "retained", "raw" (reading.Flags)
//	bdevice  the device, where its characters are not allowed in "bn", which then
//	         has "_" and two hexadecimal digits for each such byte; holds until
//	         the next "bn"
//	name     the name, where its characters are not allowed in "n", likewise
package senml

import (
	"errors"
	"fmt"

	"sluice/reading"
)

// Media types of packs (RFC 8428, 12.3).
const (
	JSON = "application/senml+json"
	CBOR = "application/senml+cbor"
)

// Options say what a pack itself does not.
type Options struct {
	// Device is whose readings those with a plain name are.
	Device string
	// Now is the time of records without one, and what relative times are
	// relative to.
	Now reading.Time
	// Exact reads the fields that AppendJSON adds, so that its readings come
	// back as they were. Without it they are skipped like any unknown field.
	Exact bool
}

// RecordError says what is wrong with which record of a pack.
type RecordError struct {
	Record int    // counted from 0; -1 is the pack as a whole
	Field  string // the field's name in JSON, or empty
	Reason string // what is wrong and what to do
}

func (e *RecordError) Error() string {
	switch {
	case e.Record < 0:
		return "pack: " + e.Reason
	case e.Field == "":
		return fmt.Sprintf("record %d: %s", e.Record, e.Reason)
	}
	return fmt.Sprintf("record %d: field %q: %s", e.Record, e.Field, e.Reason)
}

// ErrTooMany is returned for a pack of more than reading.MaxBatch readings.
var ErrTooMany = errors.New("pack: more than 65535 readings: split it")

// legal are the bytes of a name (RFC 8428, 4.5.1).
var legal = [256]bool{
	'-': true, ':': true, '.': true, '/': true, '_': true,
	'0': true, '1': true, '2': true, '3': true, '4': true, '5': true, '6': true, '7': true, '8': true, '9': true,
	'A': true, 'B': true, 'C': true, 'D': true, 'E': true, 'F': true, 'G': true, 'H': true, 'I': true, 'J': true,
	'K': true, 'L': true, 'M': true, 'N': true, 'O': true, 'P': true, 'Q': true, 'R': true, 'S': true, 'T': true,
	'U': true, 'V': true, 'W': true, 'X': true, 'Y': true, 'Z': true,
	'a': true, 'b': true, 'c': true, 'd': true, 'e': true, 'f': true, 'g': true, 'h': true, 'i': true, 'j': true,
	'k': true, 'l': true, 'm': true, 'n': true, 'o': true, 'p': true, 'q': true, 'r': true, 's': true, 't': true,
	'u': true, 'v': true, 'w': true, 'x': true, 'y': true, 'z': true,
}

func legalBytes(s string) bool {
	for i := range len(s) {
		if !legal[s[i]] {
			return false
		}
	}
	return true
}

// mayBegin reports whether a name may begin with c.
func mayBegin(c byte) bool {
	return '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}

// Bounds of what base fields repeat for every record, in bytes, so that a small
// pack cannot become a large batch.
const (
	maxName = 1024
	maxUnit = 128
)

// Times below this many seconds are relative to now (RFC 8428, 4.5.3).
const (
	relativeSeconds = 1 << 28
	relative        = relativeSeconds * 1_000_000_000 // in nanoseconds
)

// What the added fields are filled with.
var (
	qualities = [...]string{
		reading.Synchronised:   "synchronised",
		reading.FromDevice:     "device",
		reading.Unsynchronised: "unsynchronised",
	}
	flagNames = [...]struct {
		flag reading.Flags
		name string
	}{
		{reading.FlagInvalid, "invalid"},
		{reading.FlagRetained, "retained"},
		{reading.FlagRaw, "raw"},
	}
)
