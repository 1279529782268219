package jsonl

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"sluice/collector"
	"sluice/reading"
)

// appendLine renders reading number seq of the stream whose members appendStream
// has rendered. The sequence number comes first, so that the tail of a file is
// quickly read.
func appendLine(dst, stream []byte, seq uint64, r *reading.Reading) []byte {
	dst = append(dst, `{"seq":`...)
	dst = strconv.AppendUint(dst, seq, 10)
	dst = append(dst, stream...)
	dst = append(dst, `,"device":`...)
	dst = appendString(dst, r.Device)
	dst = append(dst, `,"name":`...)
	dst = appendString(dst, r.Name)
	if r.Unit != "" {
		dst = append(dst, `,"unit":`...)
		dst = appendString(dst, r.Unit)
	}
	dst = appendValue(dst, r.Value)
	dst = appendTime(dst, r.Time)
	dst = appendFlags(dst, r.Flags)
	return append(dst, "}\n"...)
}

// appendUnreadable renders a segment that could not be decoded.
func appendUnreadable(dst, stream []byte, d collector.Delivery) []byte {
	dst = append(dst, `{"seq":`...)
	dst = strconv.AppendUint(dst, d.First, 10)
	dst = append(dst, `,"last":`...)
	dst = strconv.AppendUint(dst, d.Last(), 10)
	dst = append(dst, stream...)
	dst = append(dst, `,"unreadable":`...)
	dst = appendString(dst, d.Reason)
	dst = append(dst, `,"bytes":`...)
	dst = appendBytes(dst, d.Unreadable)
	return append(dst, "}\n"...)
}

func appendStream(dst []byte, s collector.Stream) []byte {
	dst = append(dst, `,"gateway":`...)
	dst = appendString(dst, s.Gateway)
	dst = append(dst, `,"epoch":"`...)
	dst = fmt.Appendf(dst, "%016x", s.Epoch)
	dst = append(dst, `","lane":"`...)
	dst = append(dst, s.Lane.String()...)
	return append(dst, '"')
}

func appendValue(dst []byte, v reading.Value) []byte {
	if v.Kind() == reading.KindBytes {
		dst = append(dst, `,"bytes":`...)
		return appendBytes(dst, []byte(v.Raw()))
	}
	dst = append(dst, `,"value":`...)
	if v.Kind() == reading.KindText {
		return appendString(dst, v.Raw())
	}
	return append(dst, v.String()...)
}

func appendTime(dst []byte, t reading.Time) []byte {
	dst = append(dst, `,"time":"`...)
	dst = time.Unix(0, t.Wall).UTC().AppendFormat(dst, "2006-01-02T15:04:05.000000000Z")
	dst = append(dst, `","time_ns":`...)
	dst = strconv.AppendInt(dst, t.Wall, 10)
	switch t.Quality {
	case reading.FromDevice:
		dst = append(dst, `,"time_quality":"device"`...)
	case reading.Unsynchronised:
		dst = append(dst, `,"time_quality":"unsynchronised","boot":"`...)
		dst = strconv.AppendUint(dst, t.Boot, 10)
		dst = append(dst, `","mono_ns":`...)
		dst = strconv.AppendInt(dst, t.Mono, 10)
	}
	return dst
}

func appendFlags(dst []byte, f reading.Flags) []byte {
	if f == 0 {
		return dst
	}
	dst = append(dst, `,"flags":[`...)
	comma := false
	for _, flag := range []struct {
		bit  reading.Flags
		name string
	}{
		{reading.FlagInvalid, `"invalid"`},
		{reading.FlagRetained, `"retained"`},
		{reading.FlagRaw, `"raw"`},
	} {
		if f&flag.bit == 0 {
			continue
		}
		if comma {
			dst = append(dst, ',')
		}
		dst = append(dst, flag.name...)
		comma = true
	}
	return append(dst, ']')
}

// appendString renders s as a JSON string (RFC 8259, section 7). Bytes that are
// not UTF-8 become U+FFFD.
func appendString(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				dst = append(append(dst, s[start:i]...), "\ufffd"...)
				start = i + 1
			}
			i += n
			continue
		}
		if c >= ' ' && c != '"' && c != '\\' {
			i++
			continue
		}
		dst = append(dst, s[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		default:
			dst = append(dst, `\u00`...)
			dst = append(dst, hex[c>>4], hex[c&15])
		}
		i++
		start = i
	}
	return append(append(dst, s[start:]...), '"')
}

func appendBytes(dst, b []byte) []byte {
	dst = append(dst, '"')
	dst = base64.RawURLEncoding.AppendEncode(dst, b)
	return append(dst, '"')
}

// lineRange reads the sequence numbers of one line, without its line break; ok
// is false if the line is not one that this package wrote whole.
func lineRange(line []byte) (first, last uint64, ok bool) {
	rest, ok := bytes.CutPrefix(line, []byte(`{"seq":`))
	if !ok || !json.Valid(line) {
		return 0, 0, false
	}
	first, rest, ok = leadingUint(rest)
	if !ok {
		return 0, 0, false
	}
	last = first
	if after, found := bytes.CutPrefix(rest, []byte(`,"last":`)); found {
		if last, _, ok = leadingUint(after); !ok {
			return 0, 0, false
		}
	}
	return first, last, first > 0 && last >= first
}

func leadingUint(b []byte) (n uint64, rest []byte, ok bool) {
	end := 0
	for end < len(b) && '0' <= b[end] && b[end] <= '9' {
		end++
	}
	n, err := strconv.ParseUint(string(b[:end]), 10, 64)
	return n, b[end:], err == nil
}
