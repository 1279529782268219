package ingest

import (
	"strings"

	"sluice/reading"
)

// Format says how a rule's payloads are read.
type Format string

// The formats.
const (
	// FormatAuto is FormatJSON for payloads that begin with "{", "[" or a
	// quotation mark, FormatScalar for all others.
	FormatAuto Format = "auto"
	// FormatJSON reads objects and arrays: each value inside becomes a reading
	// named by its keys and indices, dotted ("color.x", "phases.0").
	FormatJSON Format = "json"
	// FormatScalar reads one number, true, false, null, or text.
	FormatScalar Format = "scalar"
	// FormatZigbee2MQTT is FormatJSON with that bridge's topics: availability
	// and bridge state are state, set and get are ignored.
	FormatZigbee2MQTT Format = "zigbee2mqtt"
	// FormatTasmota is FormatJSON with Tasmota's topics: LWT is availability,
	// cmnd is ignored.
	FormatTasmota Format = "tasmota"
	// FormatSenML reads a sink node's batch (RFC 8428); the node is the level
	// before the topic's last.
	FormatSenML Format = "senml"
	// FormatRaw keeps the payload as bytes.
	FormatRaw Format = "raw"
	// FormatIgnore counts the message and keeps nothing of it.
	FormatIgnore Format = "ignore"
)

// formats lists the formats in the order of the counters in Stats.
var formats = [...]Format{FormatAuto, FormatJSON, FormatScalar, FormatZigbee2MQTT,
	FormatTasmota, FormatSenML, FormatRaw, FormatIgnore}

// index is the format's place in formats, or -1.
func (f Format) index() int {
	for i, g := range formats {
		if f == g {
			return i
		}
	}
	return -1
}

// Rule says what the messages of some topics mean.
type Rule struct {
	// Topic is an MQTT topic filter; "+" and "#" are its wildcards.
	Topic string
	// Format is how payloads are read; empty means FormatAuto.
	Format Format
	// Device and Name are templates of text and {2}, {2-}, {topic}, {field}
	// or {a field of the payload}, such as "lab/{node-id}"; fields used so are no
	// readings of their own. A Name without {field} gets ".{field}" behind it
	// for the fields of objects. If a template is empty, or a message lacks a
	// part of it, the device of an object is its whole topic and the names are
	// its fields; the device of a scalar is its topic without the last level,
	// which is its name (of a topic with one level, "value").
	Device, Name string
	// Unit is the SenML unit (RFC 8428, 12.1) of numbers that Fields gives none.
	Unit string
	// Time names the payload field that holds the reading's time, and TimeUnit
	// says how it is written, one of the Time constants. A time that cannot be
	// (before 2000, more than a day ahead) stays an ordinary reading.
	Time, TimeUnit string
	// Fields gives fields, by their dotted name in the payload, a unit or
	// another name.
	Fields map[string]Field
	// Invalid gives fields, by a pattern of their dotted name, the numbers that
	// mean "no measurement": such a reading is flagged invalid. Nil means the
	// defaults of the format.
	Invalid map[string][]string
}

// Field is what a rule knows of one field of the payload.
type Field struct {
	Name string // instead of the field's own
	Unit string // a SenML unit (RFC 8428, 12.1)
}

// rule is a Rule made ready.
type rule struct {
	Rule
	filter       []string
	device, name template
	invalid      []sentinel
	keys         []string // payload fields that Device and Name use, without repetition
}

// sentinel is a number that means "no measurement" in fields of a pattern.
type sentinel struct {
	pattern string
	number  decimal
}

// newRule makes r ready. It tells fault everything that is wrong with it; then
// the rule is not to be used.
func newRule(r Rule, fault func(field, format string, args ...any)) *rule {
	if r.Format == "" {
		r.Format = FormatAuto
	}
	if r.Format.index() < 0 {
		fault("format", "%q is unknown: use one of %s", r.Format, formatList())
	}
	c := &rule{Rule: withDefaults(r), filter: strings.Split(r.Topic, "/")}
	if err := checkFilter(r.Topic); err != nil {
		fault("topic", "%q %v", r.Topic, err)
	}
	levels := len(c.filter)
	if c.filter[levels-1] == "#" {
		levels = 0
	}
	var err error
	if c.device, err = parseTemplate(r.Device, levels); err != nil {
		fault("device", "%v", err)
	}
	if c.device.has(partField) {
		fault("device", "%q uses {field}, which only name can: remove it", r.Device)
	}
	if c.name, err = parseTemplate(r.Name, levels); err != nil {
		fault("name", "%v", err)
	}
	switch r.TimeUnit {
	case TimeAuto, TimeISO, TimeSeconds, TimeMilliseconds, TimeMicroseconds, TimeNanoseconds:
	default:
		fault("time_unit", "%q is unknown: use iso, s, ms, us, ns, or leave it out", r.TimeUnit)
	}
	for pattern, literals := range c.Invalid {
		for _, literal := range literals {
			if !reading.IsNumber(literal) {
				fault("invalid", "%q of field %q is not a number: write it as -32768", literal, pattern)
				continue
			}
			c.invalid = append(c.invalid, sentinel{pattern, parseDecimal(literal)})
		}
	}
	c.keys = templateKeys(c.device, c.name)
	return c
}

func formatList() string {
	names := make([]string, len(formats))
	for i, f := range formats {
		names[i] = string(f)
	}
	return strings.Join(names, ", ")
}

// templateKeys lists the payload fields that templates use.
func templateKeys(ts ...template) []string {
	var keys []string
	for _, t := range ts {
	parts:
		for _, p := range t {
			if p.kind != partKey {
				continue
			}
			for _, k := range keys {
				if k == p.text {
					continue parts
				}
			}
			keys = append(keys, p.text)
		}
	}
	return keys
}

// withDefaults adds what a format knows of itself to a rule; what the rule says
// comes first.
func withDefaults(r Rule) Rule {
	switch r.Format {
	case FormatZigbee2MQTT:
		if r.Time == "" {
			r.Time = "last_seen"
		}
		if r.Invalid == nil {
			r.Invalid = zigbeeInvalid()
		}
		r.Fields = merged(r.Fields, zigbeeFields())
	case FormatTasmota:
		if r.Time == "" {
			r.Time = "Time"
		}
		r.Fields = merged(r.Fields, tasmotaFields())
	}
	return r
}

// merged returns a with what only b has.
func merged(a, b map[string]Field) map[string]Field {
	for name, f := range a {
		b[name] = f
	}
	return b
}

// builtIn are the rules behind the user's, bases the base topics of the
// Zigbee2MQTT instances. What none of them matches is read as FormatAuto.
func builtIn(bases []string) []Rule {
	var rules []Rule
	for _, base := range bases {
		rules = append(rules, Rule{Topic: base + "/#", Format: FormatZigbee2MQTT})
	}
	rules = append(rules,
		Rule{Topic: "sink/+/batch", Format: FormatSenML},
		// Announcements for home automation: no measurement in them.
		Rule{Topic: "homeassistant/#", Format: FormatIgnore},
		Rule{Topic: "tasmota/discovery/#", Format: FormatIgnore},
		Rule{Topic: "$SYS/#", Format: FormatIgnore},
	)
	for _, topic := range []string{"tele/+/+", "stat/+/+", "cmnd/#", "+/tele/+", "+/stat/+",
		"+/cmnd/#", "+/tele/+/+", "+/stat/+/+"} {
		rules = append(rules, Rule{Topic: topic, Format: FormatTasmota})
	}
	return rules
}
