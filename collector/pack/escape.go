package pack

import (
	"fmt"
	"strings"
)

// Escape writes a gateway id so that it is one level of a NATS subject, an MQTT
// topic or a path: bytes other than ASCII letters, digits, "-" and "_" become
// "%" and two hexadecimal digits, so url.PathUnescape is the way back.
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
