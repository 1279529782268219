package ingest

import (
	"strings"
	"time"

	"sluice/reading"
)

// The units of a time that a device sends as a number.
const (
	TimeAuto         = "" // ISO 8601 if it is text, else by the number's size
	TimeISO          = "iso"
	TimeSeconds      = "s"
	TimeMilliseconds = "ms"
	TimeMicroseconds = "us"
	TimeNanoseconds  = "ns"
)

// A device whose clock was never set says 1970 or the year of its firmware's
// framework; one that is set wrongly may be in the future. Such a time is not
// used: the reading keeps the time of its arrival.
const (
	earliest = 946684800 * int64(time.Second) // 2000-01-01
	ahead    = 24 * time.Hour                 // of a gateway clock that is set
)

// deviceTime reads a device's time, in nanoseconds since 1970. Text is a date
// and time of ISO 8601, in zone if it names none, or a number in text. A number
// without a unit counts seconds below 1e11 (the year 5138), then milliseconds
// below 1e14, microseconds below 1e17, nanoseconds.
func deviceTime(v reading.Value, unit string, zone *time.Location) (int64, bool) {
	text := v.Raw()
	switch v.Kind() {
	case reading.KindText:
		if !reading.IsNumber(text) {
			if unit != TimeAuto && unit != TimeISO {
				return 0, false
			}
			return isoTime(text, zone)
		}
	case reading.KindNumber:
	default:
		return 0, false
	}
	if unit == TimeISO {
		return 0, false
	}
	d := parseDecimal(text)
	if d.sign() <= 0 {
		return 0, false
	}
	if unit == TimeAuto {
		unit = unitBySize(d)
	}
	switch unit {
	case TimeSeconds:
		return d.scaled(9)
	case TimeMilliseconds:
		return d.scaled(6)
	case TimeMicroseconds:
		return d.scaled(3)
	}
	return d.scaled(0)
}

func unitBySize(d decimal) string {
	switch {
	case d.point <= 11:
		return TimeSeconds
	case d.point <= 14:
		return TimeMilliseconds
	case d.point <= 17:
		return TimeMicroseconds
	}
	return TimeNanoseconds
}

// isoTime reads 2006-01-02T15:04:05 with an optional fraction and an optional
// zone ("Z", "+01:00", "+0100"); a blank may stand for the "T".
func isoTime(s string, zone *time.Location) (int64, bool) {
	const base = "2006-01-02T15:04:05"
	if len(s) < len(base) || len(s) > 64 {
		return 0, false
	}
	if s[10] == ' ' {
		s = s[:10] + "T" + s[11:]
	}
	layout := base
	switch tail := s[len(base):]; {
	case strings.HasSuffix(tail, "Z"), len(tail) >= 6 && tail[len(tail)-3] == ':':
		layout = base + "Z07:00"
	case strings.ContainsAny(tail, "+-"):
		layout = base + "Z0700"
	}
	t, err := time.ParseInLocation(layout, s, zone)
	if err != nil || t.Year() < 1970 || t.Year() > 2200 {
		return 0, false // beyond what an int64 of nanoseconds holds, nearly
	}
	return t.UnixNano(), true
}

// plausible reports whether a device's time can be when the reading was taken,
// given when it arrived.
func plausible(ns int64, at reading.Time) bool {
	if ns < earliest {
		return false
	}
	return at.Quality == reading.Unsynchronised || ns <= at.Wall+int64(ahead)
}
