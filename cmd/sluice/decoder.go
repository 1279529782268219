package main

import (
	"sync/atomic"

	"sluice/config"
	"sluice/ingest"
	"sluice/ingest/push"
	"sluice/reading"
)

// decoder is the decoder in use; a reload puts another in its place.
type decoder struct {
	current atomic.Pointer[ingest.Decoder]
}

func (d *decoder) Decode(m ingest.Message) (reading.Batch, error) { return d.current.Load().Decode(m) }

func (d *decoder) Raw(m ingest.Message, reason string) reading.Batch {
	return d.current.Load().Raw(m, reason)
}

// newDecoder makes the decoder that a configuration asks for.
func newDecoder(c *config.Gateway) (*ingest.Decoder, error) {
	o := ingest.DecoderOptions{
		Zigbee2MQTT: c.Zigbee2MQTT.BaseTopics,
		MaxPayload:  int(c.Broker.MaxPacket),
		Batches: func(node string, payload []byte, at reading.Time) (reading.Batch, error) {
			return push.Decode("", node, payload, at, int64(c.Push.MaxBody))
		},
	}
	for _, r := range c.Rules {
		fields := make(map[string]ingest.Field, len(r.Fields))
		for name, f := range r.Fields {
			fields[name] = ingest.Field{Name: f.Name, Unit: f.Unit}
		}
		var invalid map[string][]string // nil means the format's own
		if r.Invalid != nil {
			invalid = make(map[string][]string, len(r.Invalid))
			for name, values := range r.Invalid {
				for _, v := range values {
					invalid[name] = append(invalid[name], v.Text)
				}
			}
		}
		o.Rules = append(o.Rules, ingest.Rule{Topic: r.Topic, Format: ingest.Format(r.Format), Device: r.Device, Name: r.Name,
			Unit: r.Unit, Time: r.Time, TimeUnit: r.TimeUnit, Fields: fields, Invalid: invalid})
	}
	for _, a := range c.Alarms {
		o.Alarms = append(o.Alarms, ingest.AlarmRule{Device: a.Device, Name: a.Name, Above: a.Above.Text, Below: a.Below.Text, Equals: a.Equals.Text})
	}
	return ingest.NewDecoder(o)
}

// decoderSettings differ if newDecoder would make another decoder.
func decoderSettings(c *config.Gateway) string {
	return settings([]any{c.Rules, c.Alarms, c.Zigbee2MQTT, c.Broker.MaxPacket, c.Push.MaxBody})
}
