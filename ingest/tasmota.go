package ingest

import "strings"

// tasmotaFields are the units of Tasmota's energy readings, which are fixed.
// Temperatures and pressures follow the device's settings, so they have none.
func tasmotaFields() map[string]Field {
	return map[string]Field{
		"ENERGY.Power":         {Unit: "W"},
		"ENERGY.ApparentPower": {Unit: "VA"},
		"ENERGY.ReactivePower": {Unit: "var"},
		"ENERGY.Voltage":       {Unit: "V"},
		"ENERGY.Current":       {Unit: "A"},
		"ENERGY.Total":         {Unit: "kWh"},
		"ENERGY.Today":         {Unit: "kWh"},
		"ENERGY.Yesterday":     {Unit: "kWh"},
		"UptimeSec":            {Unit: "s"},
	}
}

// tasmotaRoute fills in what a topic of Tasmota means. The prefix tele, stat or
// cmnd may stand first, behind other levels, or behind the device:
//
//	tele/<device>/SENSOR, site/tele/<device>/STATE, <device>/stat/RESULT
//
// Time fields without a zone are in DecoderOptions.Zone: Tasmota writes its
// local time.
func tasmotaRoute(r *route, levels []string) {
	prefix := -1
	for i, level := range levels {
		if level == "tele" || level == "stat" || level == "cmnd" {
			prefix = i
			break
		}
	}
	last := len(levels) - 1
	if prefix < 0 || prefix == last {
		return // like any other topic
	}
	if levels[prefix] == "cmnd" {
		r.action = actIgnore
		return
	}
	device := levels[prefix+1 : last]
	if len(device) == 0 {
		device = levels[:prefix]
	}
	if len(device) == 0 {
		return
	}
	r.object = strings.Join(device, "/")
	r.scalarDevice, r.scalarName = r.object, levels[last]
	if levels[last] == "LWT" {
		r.action = actAvailability
	}
}
