package ingest

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"sluice/reading"
)

// Limits of what one message may be; beyond them it is kept as one raw reading.
const (
	DefaultMaxPayload = 1 << 20 // bytes
	MaxRaw            = 1 << 16 // bytes of an unreadable payload that are kept
	MaxDepth          = 32      // objects and arrays inside each other
	MaxValues         = 1000    // values in one message
	MaxName           = 1024    // bytes of a dotted name, and of the topic of several values
)

// DecoderOptions say how messages become readings.
type DecoderOptions struct {
	// Rules are tried in order, before the built-in ones for Zigbee2MQTT,
	// Tasmota and sink nodes; the first whose topic matches decides.
	Rules  []Rule
	Alarms []AlarmRule
	// Zigbee2MQTT are base topics; nil means "zigbee2mqtt".
	Zigbee2MQTT []string
	// MaxPayload in bytes; 0 means DefaultMaxPayload.
	MaxPayload int
	// Batches decodes what sink nodes push. Without it their batches are
	// refused.
	Batches func(node string, payload []byte, at reading.Time) (reading.Batch, error)
	// Zone is that of devices' times that name none; nil means the local one.
	Zone *time.Location
}

// Decoder turns messages into batches of readings, by rules. It is safe for
// concurrent use.
//
// The flow of a message: its topic is looked up among the routes already found
// (route.go), or a route is made from the first rule that matches; the payload
// is walked once (walk.go) and every value meets what the rule knows of its
// field (field.go); then device, names and time are settled and the readings
// made in one slice.
type Decoder struct {
	rules   atomic.Pointer[ruleSet]
	strings interned
	walkers sync.Pool
	count   counters
	state   stateKeeper
}

// ruleSet is DecoderOptions made ready, and the routes found by it. But for
// those it never changes: other rules are another set.
type ruleSet struct {
	rules    []*rule
	fallback *rule
	alarms   []alarm
	payload  int // limit in bytes
	batches  func(string, []byte, reading.Time) (reading.Batch, error)
	zone     *time.Location
	routes   routes
}

// RuleError is one thing that is wrong with a rule.
type RuleError struct {
	List    string // "rule", "alarm" or "zigbee2mqtt.base_topics"
	N       int    // which of the list, counted from 1
	Field   string // "topic", "time_unit"; empty if the list holds no fields
	Problem string // with its remedy
}

// RuleErrors is returned when rules cannot be used: everything that is wrong.
type RuleErrors []RuleError

func (es RuleErrors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		field := e.Field
		if field != "" {
			field += " "
		}
		lines[i] = fmt.Sprintf("%s %d: %s%s", e.List, e.N, field, e.Problem)
	}
	return strings.Join(lines, "\n")
}

// NewDecoder returns a decoder, or RuleErrors.
func NewDecoder(o DecoderOptions) (*Decoder, error) {
	d := &Decoder{}
	d.walkers.New = func() any { return new(walker) }
	d.strings.known = make(map[string]string)
	d.count.rawByReason = make(map[string]uint64)
	d.count.rawByTopic = make(map[string]uint64)
	d.state.devices = make(map[string]Device)
	d.state.bridges = make(map[string]Bridge)
	if err := d.SetRules(o); err != nil {
		return nil, err
	}
	return d, nil
}

// SetRules makes all that is decoded from now on obey o. Counters and states go
// on. If o cannot be used it returns RuleErrors and nothing changes.
func (d *Decoder) SetRules(o DecoderOptions) error {
	s, err := newRuleSet(o)
	if err == nil {
		d.rules.Store(s)
	}
	return err
}

func newRuleSet(o DecoderOptions) (*ruleSet, error) {
	s := &ruleSet{payload: o.MaxPayload, batches: o.Batches, zone: o.Zone}
	if s.payload == 0 {
		s.payload = DefaultMaxPayload
	}
	if s.zone == nil {
		s.zone = time.Local
	}
	if o.Zigbee2MQTT == nil {
		o.Zigbee2MQTT = []string{"zigbee2mqtt"}
	}
	s.routes.byTopic = make(map[string]*route)
	s.routes.tables = make(map[tableKey]*table)

	var faults RuleErrors
	faultsOf := func(list string, n int) func(field, format string, args ...any) {
		return func(field, format string, args ...any) {
			faults = append(faults, RuleError{list, n, field, fmt.Sprintf(format, args...)})
		}
	}
	for i, r := range o.Rules {
		s.rules = append(s.rules, newRule(r, faultsOf("rule", i+1)))
	}
	for i, a := range o.Alarms {
		s.alarms = append(s.alarms, newAlarm(a, faultsOf("alarm", i+1)))
	}
	for i, base := range o.Zigbee2MQTT {
		if base == "" || strings.ContainsAny(base, "+#\x00") || strings.HasSuffix(base, "/") {
			faultsOf("zigbee2mqtt.base_topics", i+1)("",
				"%q is not a base topic: write it without wildcards and without \"/\" at its end", base)
		}
	}
	for i, r := range builtIn(o.Zigbee2MQTT) {
		s.rules = append(s.rules, newRule(r, faultsOf("built-in rule", i+1)))
	}
	s.fallback = newRule(Rule{Topic: "#"}, faultsOf("last rule", 1))
	if len(faults) > 0 {
		return nil, faults
	}
	return s, nil
}

// Decode turns a message into a batch. A batch without readings says that there
// was nothing to keep: the message was state of a device or bridge, or a rule
// ignores it. A payload that cannot be read is no error, it becomes one raw
// reading; the error is for senders who must be told, because their batch
// cannot be used.
func (d *Decoder) Decode(m Message) (reading.Batch, error) {
	d.count.messages.Add(1)
	r := d.rules.Load().route(m.Topic)
	d.count.byFormat[r.rule.Format.index()].Add(1)
	switch r.action {
	case actIgnore:
		return reading.Batch{}, nil
	case actBridge:
		d.count.state.Add(1)
		d.bridgeMessage(r, m)
		return reading.Batch{}, nil
	case actAvailability:
		if online, ok := availability(m.Payload); ok {
			d.count.state.Add(1)
			d.state.device(r.object, online, m.At)
			return reading.Batch{}, nil
		}
		if len(m.Payload) == 0 { // the bridge clears what the broker kept
			d.count.state.Add(1)
			return reading.Batch{}, nil
		}
	case actBatch:
		return d.sinkBatch(r, m)
	}
	return d.decode(r, m), nil
}

// Raw keeps a message's payload as it came, as one reading whose name is the
// reason, in one word, why it could not be read.
func (d *Decoder) Raw(m Message, reason string) reading.Batch {
	return d.raw(d.rules.Load().route(m.Topic), m, reason)
}

// Stats returns the counters.
func (d *Decoder) Stats() Stats { return d.count.snapshot() }

// State returns what devices and bridges last said of themselves.
func (d *Decoder) State() State { return d.state.snapshot() }

// sinkBatch decodes what a sink node pushed.
func (d *Decoder) sinkBatch(r *route, m Message) (reading.Batch, error) {
	if r.set.batches == nil {
		d.count.refused.Add(1)
		return reading.Batch{}, fmt.Errorf("batch of node %q: this gateway takes none", r.object)
	}
	if len(m.Payload) > r.set.payload {
		d.count.refused.Add(1)
		return reading.Batch{}, fmt.Errorf("batch of node %q: %d bytes are more than the limit of %d: split it",
			r.object, len(m.Payload), r.set.payload)
	}
	b, err := r.set.batches(r.object, m.Payload, m.At)
	if err != nil {
		d.count.refused.Add(1)
		return reading.Batch{}, fmt.Errorf("batch of node %q: %w", r.object, err)
	}
	d.finish(r.set, &b, m.Retained)
	return b, nil
}

// decode reads a payload that holds values.
func (d *Decoder) decode(r *route, m Message) reading.Batch {
	format := r.rule.Format
	if len(m.Payload) > r.set.payload {
		return d.raw(r, m, "size")
	}
	if format == FormatRaw {
		return d.single(r, m, reading.Bytes(m.Payload))
	}
	if len(m.Payload) == 0 {
		if format == FormatZigbee2MQTT || format == FormatTasmota {
			d.count.state.Add(1)
			return reading.Batch{} // a device was removed
		}
		return d.single(r, m, reading.Value{})
	}
	if !utf8.Valid(m.Payload) {
		return d.raw(r, m, "utf8")
	}
	text := string(m.Payload)
	if format == FormatScalar || format != FormatJSON && !looksLikeJSON(text) {
		return d.single(r, m, scalar(text))
	}
	if len(m.Topic) > MaxName {
		return d.raw(r, m, reasonName) // as the device of each value it would be more than a sink takes
	}
	w := d.walkers.Get().(*walker)
	defer d.walkers.Put(w)
	reason := w.walk(m.Payload, text, r)
	if reason != "" {
		return d.raw(r, m, reason)
	}
	b := reading.Batch{Lane: reading.Live, Readings: d.readings(w, r, m)}
	d.finish(r.set, &b, m.Retained)
	return b
}

// looksLikeJSON tells objects, arrays and quoted texts from plain scalars.
func looksLikeJSON(text string) bool {
	text = strings.TrimLeft(text, " \t\r\n")
	return text != "" && (text[0] == '{' || text[0] == '[' || text[0] == '"')
}

// scalar reads a payload that is one value. White space around numbers and
// words does not count; any other text is kept as it came.
func scalar(text string) reading.Value {
	switch trimmed := strings.TrimSpace(text); trimmed {
	case "null":
		return reading.Value{}
	case "true":
		return reading.Bool(true)
	case "false":
		return reading.Bool(false)
	default:
		if v, err := reading.Number(trimmed); reading.IsNumber(trimmed) && err == nil {
			return v
		}
		return reading.Text(text)
	}
}

// single makes a batch of the one value of a payload.
func (d *Decoder) single(r *route, m Message, v reading.Value) reading.Batch {
	f := r.scalar
	b := reading.Batch{Lane: reading.Live, Readings: []reading.Reading{
		{Device: r.scalarDevice, Name: f.name, Unit: f.unitOf(v), Value: v, Time: m.At, Flags: f.flags(v)}}}
	d.finish(r.set, &b, m.Retained)
	return b
}

// raw makes a batch of a payload that could not be read.
func (d *Decoder) raw(r *route, m Message, reason string) reading.Batch {
	d.count.raw(m.Topic, reason)
	kept := m.Payload
	if len(kept) > MaxRaw {
		kept = kept[:MaxRaw]
		d.count.cut.Add(1)
	}
	b := reading.Batch{Lane: reading.Live, Readings: []reading.Reading{
		{Device: r.object, Name: reason, Value: reading.Bytes(kept), Time: m.At, Flags: reading.FlagRaw}}}
	d.finish(r.set, &b, m.Retained)
	return b
}

// Pushed counts a batch that came by another way than a message, as if it had
// been one, and puts alarms into their lane.
func (d *Decoder) Pushed(b *reading.Batch) {
	d.count.messages.Add(1)
	d.count.byFormat[FormatSenML.index()].Add(1)
	d.finish(d.rules.Load(), b, false)
}

// finish marks and counts a batch's readings and puts alarms into their lane.
func (d *Decoder) finish(s *ruleSet, b *reading.Batch, retained bool) {
	var nulls, invalid uint64
	urgent := false
	for i := range b.Readings {
		r := &b.Readings[i]
		if retained {
			r.Flags |= reading.FlagRetained
		}
		if r.Value.Kind() == reading.KindNull {
			nulls++
		}
		if r.Flags&reading.FlagInvalid != 0 {
			invalid++
		}
		for j := range s.alarms {
			if urgent = urgent || s.alarms[j].matches(r); urgent {
				break
			}
		}
	}
	d.count.readings.Add(uint64(len(b.Readings)))
	if nulls > 0 {
		d.count.nulls.Add(nulls)
	}
	if invalid > 0 {
		d.count.invalid.Add(invalid)
	}
	if urgent {
		d.count.alarms.Add(1)
		b.Lane = reading.Alarm
	}
}
