package lab

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ReplayRules is the part of a gateway's configuration that says what the
// messages of the laboratory capture mean.
const ReplayRules = `
[[rule]]
topic = "motion-readings"
device = "{node-id}"
time = "timestamp"
[[rule]]
topic = "temp-hum-readings"
device = "{node-id}"
time = "timestamp"
[[rule]]
topic = "gas-mq135-readings"
device = "{node-id}/mq135"
time = "timestamp"
[[rule]]
topic = "gas-mq9-readings"
device = "{node-id}/mq9"
time = "timestamp"
[[rule]]
topic = "lux-readings"
device = "{node-id}"
time = "timestamp"
[[rule]]
topic = "noise-readings"
device = "{node-id}"
time = "timestamp"
`

// entries says which readings message m of the replay must become under
// ReplayRules, by a way of its own.
func (r *Replay) entries(m uint64) ([]entry, error) {
	minute, slot := m/MinuteMessages, m%MinuteMessages
	if slot < Rooms {
		return r.Office.entries(slot, minute)
	}
	c := r.captured(minute, slot)
	object := make(map[string]any)
	decoder := json.NewDecoder(strings.NewReader(c.Payload))
	decoder.UseNumber()
	if err := decoder.Decode(&object); err != nil {
		return nil, fmt.Errorf("read captured message %q: %w", c.Payload, err)
	}
	var e entry
	if levels := strings.Split(c.Topic, "/"); slices.Contains(levels, "tele") {
		// A plug writes its local time without a zone, so it is not compared.
		e.Device = levels[len(levels)-2]
		delete(object, "Time")
	} else {
		e.Device, _ = object["node-id"].(string)
		if sensor, ok := strings.CutPrefix(c.Topic, "gas-"); ok {
			e.Device += "/" + strings.TrimSuffix(sensor, "-readings")
		}
		if at, ok := object["timestamp"].(json.Number); ok {
			e.Time = at.String()
		}
		delete(object, "node-id")
		delete(object, "timestamp")
	}
	return flatten(nil, e, "", object), nil
}

// flatten appends an entry for each value inside an object, with dotted names.
func flatten(dst []entry, e entry, prefix string, object map[string]any) []entry {
	for name, v := range object {
		e.Name = prefix + name
		switch v := v.(type) {
		case map[string]any:
			dst = flatten(dst, e, e.Name+".", v)
			continue
		case json.Number:
			e.Kind, e.Value = KindNumber, v.String()
		case string:
			e.Kind, e.Value = KindText, v
		case bool:
			e.Kind, e.Value = KindBool, strconv.FormatBool(v)
		case nil:
			e.Kind, e.Value = KindNull, ""
		}
		dst = append(dst, e)
	}
	return dst
}

// entries says which readings a room's message of a minute must become.
func (o Office) entries(room, minute uint64) ([]entry, error) {
	row := o.row(room, minute)
	at, err := time.Parse(time.RFC3339, row[0])
	if err != nil {
		return nil, fmt.Errorf("read time %q of the office recording: %w", row[0], err)
	}
	var es []entry
	for i, name := range o.names {
		es = append(es, entry{
			Device: roomName(room), Name: name, Kind: KindNumber, Value: row[1+i],
			Time: strconv.FormatInt(at.Unix(), 10),
		})
	}
	return es, nil
}
