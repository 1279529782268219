package senml

import (
	"encoding/base64"
	"strconv"
	"strings"
	"unicode/utf8"

	"sluice/reading"
)

// AppendJSON appends rs to dst as a pack, one record a reading, in order. Its
// only allocation is dst's growth. Device, name and unit should be valid UTF-8;
// what is not is replaced by U+FFFD.
func AppendJSON(dst []byte, rs []reading.Reading) []byte {
	var (
		base    int64 // the base time; 0 is none
		quality = reading.Synchronised
	)
	dst = append(dst, '[')
	for i := range rs {
		r := &rs[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '{')
		if i == 0 || r.Device != rs[i-1].Device {
			dst = appendBaseName(dst, r.Device)
		}

		wall := r.Time.Wall
		switch {
		case wall < relative:
			if base != 0 {
				dst = append(dst, `"bt":0,`...)
				base = 0
			}
			dst = append(appendSeconds(append(dst, `"twall":`...), wall), ',')
		case wall == base:
		case base == 0 || i+1 < len(rs) && rs[i+1].Time.Wall == wall:
			// More of this time are to come: a new base spares each its own.
			dst = append(appendSeconds(append(dst, `"bt":`...), wall), ',')
			base = wall
		default:
			dst = append(appendSeconds(append(dst, `"t":`...), wall-base), ',')
		}
		if r.Time.Quality != quality && int(r.Time.Quality) < len(qualities) {
			quality = r.Time.Quality
			dst = append(dst, `"btq":"`...)
			dst = append(append(dst, qualities[quality]...), `",`...)
		}
		if r.Time.Boot != 0 {
			dst = append(dst, `"tboot":"`...)
			dst = append(strconv.AppendUint(dst, r.Time.Boot, 10), `",`...)
		}
		if r.Time.Mono != 0 {
			dst = append(appendSeconds(append(dst, `"tmono":`...), r.Time.Mono), ',')
		}

		dst = appendName(dst, r.Name)
		if r.Unit != "" {
			dst = append(appendString(append(dst, `"u":`...), r.Unit), ',')
		}
		if r.Flags != 0 {
			dst = appendFlags(dst, r.Flags)
		}
		dst = append(appendValue(dst, r.Value), '}')
	}
	return append(dst, ']')
}

func appendBaseName(dst []byte, device string) []byte {
	if device != "" && mayBegin(device[0]) && legalBytes(device) {
		dst = append(dst, `"bn":"`...)
		return append(append(dst, device...), `/",`...)
	}
	dst = append(dst, `"bn":"`...)
	if device == "" || !mayBegin(device[0]) {
		dst = append(dst, 'x')
	}
	dst = append(appendLegal(dst, device, true), `/","bdevice":`...)
	return append(appendString(dst, device), ',')
}

func appendName(dst []byte, name string) []byte {
	if name == "" {
		return dst
	}
	dst = append(dst, `"n":"`...)
	if legalBytes(name) && strings.IndexByte(name, '/') < 0 {
		return append(append(dst, name...), `",`...)
	}
	dst = appendLegal(dst, name, false)
	return append(appendString(append(dst, `","name":`...), name), ',')
}

// appendLegal appends s with "_" and two hexadecimal digits for each byte that no
// name may have, so that what was different stays different. A name's own "/"
// would be taken for the end of the device.
func appendLegal(dst []byte, s string, slash bool) []byte {
	for i := range len(s) {
		if c := s[i]; legal[c] && (slash || c != '/') {
			dst = append(dst, c)
		} else {
			dst = append(dst, '_', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return dst
}

const hexDigits = "0123456789abcdef"

func appendFlags(dst []byte, flags reading.Flags) []byte {
	dst = append(dst, `"flags":[`...)
	for _, f := range flagNames {
		if flags&f.flag != 0 {
			dst = append(append(append(dst, '"'), f.name...), `",`...)
		}
	}
	if dst[len(dst)-1] == ',' {
		dst = dst[:len(dst)-1]
	}
	return append(dst, `],`...)
}

func appendValue(dst []byte, v reading.Value) []byte {
	switch v.Kind() {
	case reading.KindBool:
		return strconv.AppendBool(append(dst, `"vb":`...), v.IsTrue())
	case reading.KindNumber:
		return append(append(dst, `"v":`...), v.Raw()...)
	case reading.KindText:
		return appendString(append(dst, `"vs":`...), v.Raw())
	case reading.KindBytes:
		dst = append(dst, `"vd":"`...)
		dst = appendBase64(dst, v.Raw())
		return append(dst, '"')
	}
	// A record must have a value (RFC 8428, 4.2): readers that do not know "null"
	// find an empty text.
	return append(dst, `"vs":"","null":true`...)
}

// appendBase64 works in pieces, so that s is not copied whole.
func appendBase64(dst []byte, s string) []byte {
	var piece [48]byte // a multiple of 3
	for len(s) > 0 {
		n := copy(piece[:], s)
		dst = base64.RawURLEncoding.AppendEncode(dst, piece[:n])
		s = s[n:]
	}
	return dst
}

// appendSeconds appends ns nanoseconds in seconds, exactly and without needless
// zeros.
func appendSeconds(dst []byte, ns int64) []byte {
	u := uint64(ns)
	if ns < 0 {
		dst = append(dst, '-')
		u = -u
	}
	dst = strconv.AppendUint(dst, u/1e9, 10)
	fraction := uint32(u % 1e9)
	if fraction == 0 {
		return dst
	}
	dst = append(dst, '.')
	for place := uint32(1e8); fraction > 0; place /= 10 {
		dst = append(dst, byte('0'+fraction/place))
		fraction %= place
	}
	return dst
}

// appendString appends s as a JSON string (RFC 8259, section 7).
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c < utf8.RuneSelf && c != '"' && c != '\\' {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				dst = append(append(dst, s[start:i]...), "\uFFFD"...)
				start = i + 1
			}
			i += size
			continue
		}
		dst = append(dst, s[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\t':
			dst = append(dst, '\\', 't')
		case '\r':
			dst = append(dst, '\\', 'r')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		start = i
	}
	return append(append(dst, s[start:]...), '"')
}
