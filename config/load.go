// Package config reads the configurations of the gateway and of the collector.
// A configuration is taken whole or not at all: every fault in it is reported
// at once, with its line, and nothing is guessed or clamped.
//
// Other packages are handed plain values; they never see these types.
package config

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
)

// readFile returns a configuration file and the absolute folder it lies in.
func readFile(path string) ([]byte, string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, "", fmt.Errorf("configuration %s: %w", path, err)
	}
	f, err := os.Open(abs)
	if err != nil {
		if _, also := os.Stat(abs + ".txt"); also == nil {
			return nil, "", fmt.Errorf("configuration %s: %w; there is a %s: rename it", path, err, filepath.Base(abs)+".txt")
		}
		return nil, "", fmt.Errorf("configuration %s: %w; name the right file, or write one with init-config", path, err)
	}
	defer f.Close()
	// One byte more than is allowed is enough to see that it is too much.
	data, err := io.ReadAll(io.LimitReader(f, maxDocument+1))
	if err != nil {
		return nil, "", fmt.Errorf("configuration %s: %w", path, err)
	}
	return data, filepath.Dir(abs), nil
}

// load decodes data into root, a pointer to a configuration that holds the
// defaults, and then has it validated. Validation finds faults by field; their
// lines are added here, and fields that could not be decoded have theirs
// already.
func load(data []byte, root any, check func(*checker)) Faults {
	doc, faults := parse(data)
	if doc == nil {
		return faults
	}
	v := reflect.ValueOf(root).Elem()
	d := newDecoder(v.Type())
	d.table(doc, "", v)
	for _, f := range faults {
		d.bad[f.Field] = true
	}
	faults = append(faults, d.faults...)
	c := &checker{}
	check(c)
	for _, f := range c.faults {
		if d.known(f.Field) {
			continue
		}
		if f.Line == 0 {
			f.Line = d.line(f.Field)
		}
		faults = append(faults, f)
	}
	slices.SortStableFunc(faults, func(a, b Fault) int {
		switch {
		case a.Line == b.Line:
			return 0
		case a.Line == 0:
			return 1
		case b.Line == 0:
			return -1
		}
		return a.Line - b.Line
	})
	return faults
}

// known reports whether the field, or a section or list it is part of, has its
// fault from decoding.
func (d *decoder) known(field string) bool {
	for field != "" {
		if d.bad[field] {
			return true
		}
		field = parent(field)
	}
	return false
}

// line is where a field stands, or else the section it would stand in.
func (d *decoder) line(field string) int {
	for field != "" {
		if l := d.lines[field]; l > 0 {
			return l
		}
		field = parent(field)
	}
	return 0
}

// parent is the path of what holds the field: "mqtt[1].url", "mqtt[1]", "mqtt".
func parent(field string) string {
	return field[:max(0, strings.LastIndexAny(field, ".["))]
}

// absolute makes paths that are set and relative start at dir.
func absolute(dir string, paths ...*string) {
	for _, p := range paths {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(dir, *p)
		}
	}
}
