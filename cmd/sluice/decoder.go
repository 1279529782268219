package main

import (
	"errors"
	"fmt"

	"sluice/config"
	"sluice/ingest"
	"sluice/ingest/push"
	"sluice/reading"
)

// load reads a configuration file and checks also what only the decoder knows of
// rules.
func load(file string) (*config.Gateway, error) {
	return config.LoadGateway(file, func(c *config.Gateway) config.Faults {
		_, err := ingest.NewDecoder(decoderOptions(c))
		return ruleFaults(err)
	})
}

// ruleFaults says in the configuration's words what the decoder found.
func ruleFaults(err error) config.Faults {
	found, _ := errors.AsType[ingest.RuleErrors](err)
	var faults config.Faults
	for _, e := range found {
		field := fmt.Sprintf("%s[%d]", e.List, e.N)
		if e.Field != "" {
			field += "." + e.Field
		}
		faults = append(faults, config.Fault{Field: field, Problem: e.Problem})
	}
	return faults
}

// decoderOptions are the decoder's part of a configuration.
func decoderOptions(c *config.Gateway) ingest.DecoderOptions {
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
	return o
}

// decoderSettings differ if decoderOptions do.
func decoderSettings(c *config.Gateway) string {
	return settings([]any{c.Rules, c.Alarms, c.Zigbee2MQTT, c.Broker.MaxPacket, c.Push.MaxBody})
}
