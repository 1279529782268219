package ingest

import (
	"fmt"
	"strconv"
	"strings"
)

// template builds a device's or a reading's name out of text and placeholders:
//
//	{2}      the topic's second level
//	{2-}     the topic from its second level to its end, with the slashes
//	{topic}  the whole topic
//	{field}  the field's own name (only in Rule.Name)
//	{xyz}    the value of the payload's field xyz, dotted if nested
//
// A template with a part that a message does not have counts as not given.
type template []part

type part struct {
	kind  partKind
	text  string // the text, or the payload field's name
	level int    // counted from 1
}

type partKind uint8

const (
	partText partKind = iota
	partLevel
	partLevels
	partTopic
	partField
	partKey
)

// parseTemplate reads a template; levels is how many levels every topic of the
// rule has, or 0 if that varies.
func parseTemplate(s string, levels int) (template, error) {
	var t template
	for rest := s; rest != ""; {
		open := strings.IndexByte(rest, '{')
		if open != 0 {
			if open < 0 {
				open = len(rest)
			}
			t = append(t, part{kind: partText, text: rest[:open]})
			rest = rest[open:]
			continue
		}
		end := strings.IndexByte(rest, '}')
		if end < 0 {
			return nil, fmt.Errorf("%q has a \"{\" without \"}\": close it", s)
		}
		p, err := parsePlaceholder(rest[1:end])
		if err != nil {
			return nil, fmt.Errorf("%q: %w", s, err)
		}
		if levels > 0 && p.level > levels {
			return nil, fmt.Errorf("%q asks for level %d, but the rule's topics have %d: use one of those", s, p.level, levels)
		}
		t = append(t, p)
		rest = rest[end+1:]
	}
	return t, nil
}

func parsePlaceholder(name string) (part, error) {
	switch name {
	case "":
		return part{}, fmt.Errorf("\"{}\" is empty: put a level's number or a field's name between the braces")
	case "topic":
		return part{kind: partTopic}, nil
	case "field":
		return part{kind: partField}, nil
	}
	kind, digits := partLevel, name
	if n, ok := strings.CutSuffix(name, "-"); ok {
		kind, digits = partLevels, n
	}
	if n, err := strconv.Atoi(digits); err == nil {
		if n < 1 {
			return part{}, fmt.Errorf("level %d does not exist: levels count from 1", n)
		}
		return part{kind: kind, level: n}, nil
	}
	return part{kind: partKey, text: name}, nil
}

// has reports whether the template has a part of the kind.
func (t template) has(kind partKind) bool {
	for _, p := range t {
		if p.kind == kind {
			return true
		}
	}
	return false
}

// resolve replaces what the topic decides by text, and reports whether the
// topic has all the levels asked for.
func (t template) resolve(topic string, levels []string) (template, bool) {
	var r template
	add := func(p part) {
		if n := len(r); p.kind == partText && n > 0 && r[n-1].kind == partText {
			r[n-1].text += p.text
			return
		}
		r = append(r, p)
	}
	for _, p := range t {
		switch p.kind {
		case partTopic:
			add(part{text: topic})
		case partLevel, partLevels:
			if p.level > len(levels) {
				return nil, false
			}
			text := levels[p.level-1]
			if p.kind == partLevels {
				text = strings.Join(levels[p.level-1:], "/")
			}
			add(part{text: text})
		default:
			add(p)
		}
	}
	return r, true
}

// append adds the name of a resolved template to dst: field stands for
// {field}, key finds the payload's fields. It reports false if one is missing.
func (t template) append(dst []byte, field string, key func(name string) (string, bool)) ([]byte, bool) {
	for _, p := range t {
		switch p.kind {
		case partField:
			dst = append(dst, field...)
		case partKey:
			value, ok := key(p.text)
			if !ok {
				return dst, false
			}
			dst = append(dst, value...)
		default:
			dst = append(dst, p.text...)
		}
	}
	return dst, true
}

// String shows the template as it would be written.
func (t template) String() string {
	var b strings.Builder
	for _, p := range t {
		switch p.kind {
		case partText:
			b.WriteString(p.text)
		case partLevel:
			fmt.Fprintf(&b, "{%d}", p.level)
		case partLevels:
			fmt.Fprintf(&b, "{%d-}", p.level)
		case partTopic:
			b.WriteString("{topic}")
		case partField:
			b.WriteString("{field}")
		case partKey:
			b.WriteString("{" + p.text + "}")
		}
	}
	return b.String()
}
