package ingest

import (
	"bytes"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// zigbeeInvalid are what a ZigBee attribute that was never measured becomes
// after Zigbee2MQTT's scaling: the invalid int16 (0x8000) and uint16 (0xffff)
// of the ZigBee Cluster Library, 2.6.2.
func zigbeeInvalid() map[string][]string {
	return map[string][]string{
		"power*":       {"-32768", "-3276.8"},
		"current*":     {"65.535"},
		"voltage*":     {"655.35", "6553.5"},
		"temperature":  {"-327.68"},
		"humidity":     {"655.35"},
		"pressure":     {"-32768", "-3276.8"},
		"power_factor": {"-128"},
	}
}

// zigbeeFields are the units of fields whose unit is the same on every device;
// voltage is not among them: mains report volts, batteries millivolts.
func zigbeeFields() map[string]Field {
	return map[string]Field{
		"temperature":        {Unit: "Cel"},
		"device_temperature": {Unit: "Cel"},
		"humidity":           {Unit: "%RH"},
		"battery":            {Unit: "%EL"},
		"pressure":           {Unit: "hPa"},
		"power":              {Unit: "W"},
		"current":            {Unit: "A"},
		"energy":             {Unit: "kWh"},
		"illuminance_lux":    {Unit: "lx"},
		"co2":                {Unit: "ppm"},
		"pm25":               {Unit: "ug/m3"},
	}
}

// zigbeeRoute fills in what a topic of Zigbee2MQTT means:
//
//	<base>/<name>                  readings; the name may contain slashes
//	<base>/<name>/availability     state of the device
//	<base>/<name>/set|get[/<attr>] commands to the device
//	<base>/bridge/...              state of the bridge
func zigbeeRoute(r *route, levels []string) {
	base := fixedLevels(r.rule.filter)
	r.base = strings.Join(levels[:base], "/")
	rest := levels[base:]
	n := len(rest)
	switch {
	case n == 0:
		return // like any other topic
	case rest[0] == "bridge":
		r.action = actBridge
		r.detail = strings.Join(rest[1:], "/")
		return
	case n > 1 && rest[n-1] == "availability":
		r.action = actAvailability
		r.object = strings.Join(rest[:n-1], "/")
		r.scalarDevice, r.scalarName = r.object, "availability"
		return
	case n > 1 && isCommand(rest[n-1]), n > 2 && isCommand(rest[n-2]):
		r.action = actIgnore
		return
	}
	r.object = strings.Join(rest, "/")
	r.scalarDevice, r.scalarName = r.object, "value"
	if n > 1 {
		r.scalarDevice, r.scalarName = strings.Join(rest[:n-1], "/"), rest[n-1]
	}
}

func isCommand(level string) bool { return level == "set" || level == "get" }

// fixedLevels counts a filter's levels before its first wildcard.
func fixedLevels(filter []string) int {
	for i, level := range filter {
		if level == "+" || level == "#" {
			return i
		}
	}
	return len(filter)
}

// bridgeMessage notes what a bridge says of itself.
func (d *Decoder) bridgeMessage(r *route, m Message) {
	switch r.detail {
	case "state":
		if online, ok := availability(m.Payload); ok {
			d.state.bridge(r.base, m.At, func(b *Bridge) { b.Online = online })
		}
	case "devices":
		if n, ok := countElements(m.Payload, r.set.payload); ok {
			d.state.bridge(r.base, m.At, func(b *Bridge) { b.Devices = n })
		}
	case "info":
		if version := stringField(m.Payload, "version", r.set.payload); version != "" {
			d.state.bridge(r.base, m.At, func(b *Bridge) { b.Version = version })
		}
	case "logging":
		if level := stringField(m.Payload, "level", r.set.payload); level == "error" {
			text := stringField(m.Payload, "message", r.set.payload)
			d.state.bridge(r.base, m.At, func(b *Bridge) { b.Errors++; b.LastError = text })
		}
	default:
		d.state.bridge(r.base, m.At, func(*Bridge) {})
	}
}

// availability reads "online", "offline", in any case, or {"state":"online"}.
func availability(payload []byte) (online, ok bool) {
	text := string(bytes.TrimSpace(payload[:min(len(payload), 1024)]))
	if strings.HasPrefix(text, "{") {
		text = stringField(payload, "state", 1024)
	}
	switch strings.ToLower(strings.Trim(text, `"`)) {
	case "online":
		return true, true
	case "offline":
		return false, true
	}
	return false, false
}

// stringField returns the text of a field of a JSON object, at most 512 bytes
// of it, or "" if there is none.
func stringField(payload []byte, field string, limit int) string {
	if len(payload) > limit {
		return ""
	}
	dec := jsontext.NewDecoder(bytes.NewBuffer(payload))
	if tok, err := dec.ReadToken(); err != nil || tok.Kind() != '{' {
		return ""
	}
	for dec.PeekKind() == '"' {
		name, err := dec.ReadToken()
		if err != nil {
			return ""
		}
		if name.String() != field {
			if dec.SkipValue() != nil {
				return ""
			}
			continue
		}
		if dec.PeekKind() != '"' {
			return ""
		}
		value, err := dec.ReadToken()
		if err != nil {
			return ""
		}
		s := value.String()
		return strings.ToValidUTF8(s[:min(len(s), 512)], "")
	}
	return ""
}

// countElements counts the elements of a JSON array.
func countElements(payload []byte, limit int) (int, bool) {
	if len(payload) > limit {
		return 0, false
	}
	dec := jsontext.NewDecoder(bytes.NewBuffer(payload))
	if tok, err := dec.ReadToken(); err != nil || tok.Kind() != '[' {
		return 0, false
	}
	n := 0
	for ; dec.PeekKind() != ']'; n++ {
		if dec.SkipValue() != nil {
			return 0, false
		}
	}
	return n, true
}
