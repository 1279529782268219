package pack

import (
	"fmt"
	"strconv"
	"strings"
)

// Escape writes a gateway id so that it is one level of a NATS subject, an MQTT
// topic or a path: bytes other than ASCII letters, digits, "-" and "_" become
// "%" and two hexadecimal digits.
func Escape(id string) string {
	var b strings.Builder
	for i := range len(id) {
		c := id[i]
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// Unescape is the inverse of Escape.
func Unescape(level string) (string, error) {
	var b strings.Builder
	for rest := level; rest != ""; {
		if rest[0] != '%' {
			b.WriteByte(rest[0])
			rest = rest[1:]
			continue
		}
		if len(rest) < 3 {
			return "", fmt.Errorf("gateway %q: ends within an escape", level)
		}
		c, err := strconv.ParseUint(rest[1:3], 16, 8)
		if err != nil {
			return "", fmt.Errorf("gateway %q: %w", level, err)
		}
		b.WriteByte(byte(c))
		rest = rest[3:]
	}
	return b.String(), nil
}
