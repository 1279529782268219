package ingest

import (
	"cmp"
	"strings"
	"sync"
)

// action is what is done with the messages of a topic.
type action uint8

const (
	actDecode action = iota
	actIgnore
	actAvailability
	actBridge
	actBatch
)

// route is all that a topic alone decides. It does not change once made.
type route struct {
	set    *ruleSet // which it is a part of
	rule   *rule
	action action
	object string // device of an object, of availability, of what is unreadable
	base   string // a bridge's base topic
	detail string // the bridge's topic behind "bridge/"

	device template // with what only the payload knows; empty if object is final
	name   template // likewise, for the fields of objects; empty if they keep their names
	table  *table   // the fields of objects

	scalarDevice, scalarName string // of a payload that is one value
	scalar                   *field
}

// Bounds of what is remembered: routes are forgotten all at once and found
// again, which keeps the usual case, few topics, fast and any other case small.
const (
	maxRoutes = 4096
	maxTables = 64
	maxCached = 256 // bytes of a topic or name that is remembered
)

// routes remembers the route of each topic seen.
type routes struct {
	mu      sync.RWMutex // guards both
	byTopic map[string]*route
	tables  map[tableKey]*table
}

// tableKey says which routes share their knowledge of fields: those with the
// same rule whose names are built alike.
type tableKey struct {
	rule *rule
	name string
}

// route returns the topic's route, making it if it is new.
func (s *ruleSet) route(topic string) *route {
	s.routes.mu.RLock()
	r := s.routes.byTopic[topic]
	s.routes.mu.RUnlock()
	if r != nil {
		return r
	}
	r = s.newRoute(topic)
	s.routes.mu.Lock()
	defer s.routes.mu.Unlock()
	if len(s.routes.byTopic) >= maxRoutes || len(s.routes.tables) >= maxTables {
		clear(s.routes.byTopic)
		clear(s.routes.tables)
	}
	key := tableKey{r.rule, r.name.String()}
	if r.table = s.routes.tables[key]; r.table == nil {
		r.table = newTable()
		s.routes.tables[key] = r.table
	}
	if len(topic) <= maxCached {
		s.routes.byTopic[strings.Clone(topic)] = r
	}
	return r
}

func (s *ruleSet) newRoute(topic string) *route {
	topic = strings.ToValidUTF8(strings.Clone(topic), "\uFFFD")
	levels := strings.Split(topic, "/")
	r := &route{set: s, rule: s.fallback, object: topic, scalarDevice: topic, scalarName: "value"}
	for _, c := range s.rules {
		if matches(c.filter, levels) {
			r.rule = c
			break
		}
	}
	if last := len(levels) - 1; last > 0 {
		r.scalarDevice, r.scalarName = strings.Join(levels[:last], "/"), levels[last]
	}
	switch r.rule.Format {
	case FormatIgnore:
		r.action = actIgnore
	case FormatSenML:
		r.action = actBatch
		if len(levels) > 1 {
			r.object = levels[len(levels)-2]
		}
	case FormatZigbee2MQTT:
		zigbeeRoute(r, levels)
	case FormatTasmota:
		tasmotaRoute(r, levels)
	}
	// Levels may be empty, what identifies a reading not.
	r.object = cmp.Or(r.object, topic)
	r.scalarDevice = cmp.Or(r.scalarDevice, topic)
	r.scalarName = cmp.Or(r.scalarName, "value")
	if t, ok := r.rule.device.resolve(topic, levels); ok && len(t) > 0 {
		if name, ok := t.append(nil, "", noKeys); ok && len(name) > 0 {
			r.object, r.scalarDevice = string(name), string(name)
		} else if !ok {
			r.device = t
		}
	}
	r.scalar = newField("", r)
	if t, ok := r.rule.name.resolve(topic, levels); ok && len(t) > 0 {
		if name, ok := t.append(nil, r.scalar.name, noKeys); ok && len(name) > 0 {
			r.scalar.name = string(name)
		}
		if !t.has(partField) { // or all fields would have one name
			t = append(t, part{text: "."}, part{kind: partField})
		}
		r.name = t
	}
	return r
}

// noKeys is what a template finds where there is no payload.
func noKeys(string) (string, bool) { return "", false }

// interned keeps one copy of each string that payloads build names from.
type interned struct {
	mu    sync.RWMutex // guards known
	known map[string]string
}

// maxInterned bounds interned; beyond it everything is forgotten at once.
const maxInterned = 16384

func (n *interned) get(b []byte) string {
	n.mu.RLock()
	s, ok := n.known[string(b)]
	n.mu.RUnlock()
	if ok {
		return s
	}
	s = string(b)
	if len(s) > maxCached {
		return s
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.known) >= maxInterned {
		clear(n.known)
	}
	n.known[s] = s
	return s
}
