package config

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestEveryKeyIsDocumented compares the keys with docs/configuration.md, both
// ways.
func TestEveryKeyIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	gateway, collector, ok := strings.Cut(string(text), "\n## The collector's file\n")
	if !ok {
		t.Fatal("no part for the collector")
	}
	for _, part := range []struct {
		name string
		text string
		root reflect.Type
	}{{"gateway", gateway, reflect.TypeFor[Gateway]()}, {"collector", collector, reflect.TypeFor[Collector]()}} {
		got, want := documented(part.text), allKeys(part.root, "")
		slices.Sort(got)
		slices.Sort(want)
		for _, key := range want {
			if !slices.Contains(got, key) {
				t.Errorf("%s: %s is not documented", part.name, key)
			}
		}
		for _, key := range got {
			if !slices.Contains(want, key) {
				t.Errorf("%s: %s is documented, but there is no such key", part.name, key)
			}
		}
	}
}

// documented lists the keys in the first columns of the tables below headings.
func documented(text string) []string {
	header := regexp.MustCompile(`^### (?:\[+([a-z0-9_.]+)\]|Top of the file)`)
	code := regexp.MustCompile("`([a-z_0-9]+)`")
	var found []string
	section, inside := "", false
	for line := range strings.Lines(text) {
		if m := header.FindStringSubmatch(line); m != nil {
			section, inside = m[1], true
		}
		if cell, ok := strings.CutPrefix(line, "| "); ok && inside {
			cell, _, _ = strings.Cut(cell, " |")
			for _, m := range code.FindAllStringSubmatch(cell, -1) {
				found = append(found, join(section, m[1]))
			}
		}
	}
	return found
}

func allKeys(t reflect.Type, section string) []string {
	var all []string
	for _, name := range keys(t) {
		ft := t.Field(fields(t)[name].index).Type
		for ft.Kind() == reflect.Slice || ft.Kind() == reflect.Pointer {
			ft = ft.Elem()
		}
		if ft.Kind() == reflect.Struct && ft != reflect.TypeFor[Scalar]() {
			all = append(all, allKeys(ft, join(section, name))...)
			continue
		}
		all = append(all, join(section, name))
	}
	return all
}
