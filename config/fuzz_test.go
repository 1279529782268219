package config

import (
	"slices"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
)

// FuzzParseGateway feeds the loader any bytes. What it takes must be TOML by an
// independent reader, and every fault must say what is wrong, on a line that is
// there.
func FuzzParseGateway(f *testing.F) {
	for _, seed := range []string{GatewayExample(), uncommented(GatewayExample()), "version = 1", "version = 1\nversion = 1",
		"a.b.c = [{d = 1}, [\n2]]\n[a.b]\n[[a.e]]\n[a.e.f]\n", "[[broker.user]]\nname = \"\"\"\nx\"\"\"\n", "x = { y = \"\\u00zz\" }", "\xef\xbb\xbfversion = 1\r\n",
		"store.quota = \"1e309GB\"\n[store.x]\n", "[alarm]]\nabove = 1e999999999\nbelow = 0b1\n", "[[rule]]\ninvalid = { a = [1, 2.5], b = 3 }\nfields = { c = 1 }",
		"[[alarm]]\nabove = 1e999999999\nbelow = 2e999999999\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		_, err := ParseGateway([]byte(text), "/nowhere", nil)
		if err == nil {
			var any map[string]any
			if err := toml.Unmarshal([]byte(strings.TrimPrefix(text, "\xef\xbb\xbf")), &any); err != nil {
				t.Errorf("taken, but: %v", err)
			}
			return
		}
		faults := err.(Faults)
		lines := strings.Count(text, "\n") + 1
		for i, fault := range faults {
			if fault.Problem == "" || fault.Remedy == "" || fault.Line < 0 || fault.Line > lines {
				t.Errorf("fault %+v in a file of %d lines", fault, lines)
			}
			if slices.Contains(faults[:i], fault) {
				t.Errorf("fault %+v comes twice", fault)
			}
		}
	})
}

func TestNearest(t *testing.T) {
	for _, test := range []struct{ word, want string }{
		{"qouta", "quota"}, {"Quota", "quota"}, {"commit-interval", "commit_interval"}, {"commitinterval", "commit_interval"},
		{"comit_bytes", "commit_bytes"}, {"zebra", ""}, {"", ""}, {strings.Repeat("quota", 100), "quota"},
	} {
		if got := nearest(test.word, []string{"quota", "policy", "commit_interval", "commit_bytes"}); got != test.want {
			t.Errorf("nearest(%q): got %q, want %q", test.word, got, test.want)
		}
	}
}

func TestSize(t *testing.T) {
	for _, test := range []struct {
		text string
		want Size
		ok   bool
	}{
		{"64KB", 64000, true}, {"64KiB", 65536, true}, {"1.5 MB", 1500000, true}, {"0B", 0, true}, {"12B", 12, true},
		{"", 0, false}, {"MB", 0, false}, {"-1MB", 0, false}, {"1e3KB", 0, false}, {"64", 0, false}, {"99999999TB", 0, false}, {"1mb", 0, false},
	} {
		var got Size
		err := got.UnmarshalText([]byte(test.text))
		if got != test.want || (err == nil) != test.ok {
			t.Errorf("%q: got %d, %v; want %d, ok %v", test.text, got, err, test.want, test.ok)
		}
	}
}
