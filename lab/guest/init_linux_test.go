package guest

import (
	"strings"
	"testing"
)

func TestLineWriter(t *testing.T) {
	tests := []struct {
		writes []string
		want   string
	}{
		{nil, "done\n"},
		{[]string{"a\n"}, "a\ndone\n"},
		{[]string{"a", ""}, "a\ndone\n"},
		{[]string{"a\nb", "c\n"}, "a\nbc\ndone\n"},
	}
	for _, test := range tests {
		var b strings.Builder
		l := &lineWriter{w: &b}
		for _, s := range test.writes {
			l.Write([]byte(s))
		}
		if err := l.finish(lastDone); err != nil || b.String() != test.want {
			t.Errorf("%q: got %q, %v, want %q", test.writes, b.String(), err, test.want)
		}
	}
}
