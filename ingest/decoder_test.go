package ingest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"sluice/reading"
)

var at = reading.Time{Wall: 1_700_000_000_000_000_000} // 2023-11-14

func newDecoder(t testing.TB, o DecoderOptions) *Decoder {
	t.Helper()
	if o.Zone == nil {
		o.Zone = time.UTC
	}
	d, err := NewDecoder(o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func decode(t testing.TB, d *Decoder, topic, payload string) reading.Batch {
	t.Helper()
	b, err := d.Decode(Message{Topic: topic, Payload: []byte(payload), At: at})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// show writes readings as "device name=value unit !flags @seconds", the time
// only where it is not that of arrival.
func show(rs []reading.Reading) []string {
	kinds := map[reading.Kind]string{reading.KindText: "t:", reading.KindBytes: "b:"}
	var out []string
	for _, r := range rs {
		s := r.Device + " " + r.Name + "=" + kinds[r.Value.Kind()]
		if r.Value.Kind() == reading.KindBytes {
			s += r.Value.Raw()
		} else {
			s += r.Value.String()
		}
		if r.Unit != "" {
			s += " " + r.Unit
		}
		if r.Flags != 0 {
			s += fmt.Sprintf(" !%d", r.Flags)
		}
		if r.Time != at {
			s += fmt.Sprintf(" @%d/%d", r.Time.Wall, r.Time.Quality)
		}
		out = append(out, s)
	}
	return out
}

func TestDecode(t *testing.T) {
	rules := []Rule{
		{Topic: "sonoff/tele/+/+", Format: FormatTasmota, Device: "plug {3}"},
		{Topic: "site/+/+/data", Device: "{2}/{3}", Name: "{sensor}", Time: "ts", Unit: "Cel",
			Fields: map[string]Field{"h": {Name: "humidity", Unit: "%RH"}}},
		{Topic: "blob/#", Format: FormatRaw},
		{Topic: "strict/#", Format: FormatJSON, Device: "{2-}"},
		{Topic: "text/+", Format: FormatScalar, Name: "said"},
		{Topic: "noise/#", Format: FormatIgnore},
		{Topic: "gas/+", Invalid: map[string][]string{"p*": {"-1"}}},
		{Topic: "z/+/+", Format: FormatZigbee2MQTT},
	}
	d := newDecoder(t, DecoderOptions{Rules: rules, Zigbee2MQTT: []string{"zigbee2mqtt", "site/z2m"}})
	tests := []struct {
		name, topic, payload string
		want                 []string
	}{
		// F23: null is a value of its own kind, the rest is stored.
		{"nulls", "zigbee2mqtt/plug", `{"state":"ON","linkquality":15,"power":null,"current":null,"voltage":236.95}`,
			[]string{"plug state=t:ON", "plug linkquality=15", "plug power=null W", "plug current=null A", "plug voltage=236.95"}},
		// F24: nested objects become dotted names.
		{"nested", "zigbee2mqtt/s", `{"battery":100,"occupancy":true,"temperature":21.51,"update":{"installed_version":1124102917,"latest_version":1124102917,"state":"idle"}}`,
			[]string{"s battery=100 %EL", "s occupancy=true", "s temperature=21.51 Cel", "s update.installed_version=1124102917",
				"s update.latest_version=1124102917", "s update.state=t:idle"}},
		// F25: state is no reading.
		{"availability", "zigbee2mqtt/hall/lamp/availability", `online`, nil},
		{"availability object", "zigbee2mqtt/lamp/availability", `{"state":"offline"}`, nil},
		{"availability nonsense is kept", "zigbee2mqtt/lamp/availability", `perhaps`, []string{"lamp availability=t:perhaps"}},
		{"bridge state", "zigbee2mqtt/bridge/state", `{"state":"online"}`, nil},
		{"bridge devices", "site/z2m/bridge/devices", `[{"friendly_name":"a"},{"friendly_name":"b"}]`, nil},
		{"bridge info", "site/z2m/bridge/info", `{"version":"2.1.0","config":{}}`, nil},
		{"bridge logging", "site/z2m/bridge/logging", `{"level":"error","message":"adapter gone"}`, nil},
		{"bridge event", "zigbee2mqtt/bridge/event", `{"type":"device_joined"}`, nil},
		{"bridge response", "zigbee2mqtt/bridge/response/networkmap", `{"status":"ok"}`, nil},
		{"set", "zigbee2mqtt/lamp/set", `{"state":"ON"}`, nil},
		{"set of one attribute", "zigbee2mqtt/hall/lamp/set/brightness", `7`, nil},
		{"get", "zigbee2mqtt/lamp/get", `{"state":""}`, nil},
		{"device called set", "zigbee2mqtt/set", `{"x":1}`, []string{"set x=1"}},
		// F26: integers keep every digit.
		{"large integer", "a/b", `{"id":2882429806056571124,"u":18446744073709551615,"d":0.10,"e":1E+2}`,
			[]string{"a/b id=2882429806056571124", "a/b u=18446744073709551615", "a/b d=0.10", "a/b e=1E+2"}},
		// F27: known invalid numbers pass, flagged.
		{"invalid", "zigbee2mqtt/p", `{"power":-32768,"current":65.535,"voltage":655.350,"power_l1":-32768.0,"current_l1":65.53}`,
			[]string{"p power=-32768 W !1", "p current=65.535 A !1", "p voltage=655.350 !1", "p power_l1=-32768.0 !1", "p current_l1=65.53"}},
		{"invalid by rule", "gas/x", `{"ppm":-1.0,"co":-1}`, []string{"gas/x ppm=-1.0 !1", "gas/x co=-1"}},
		// F28: what cannot be read is kept as it came.
		{"broken", "a/b", `{"a":1,`, []string{`a/b json=b:{"a":1, !4`}},
		{"trailing", "a/b", `{"a":1}{`, []string{`a/b json=b:{"a":1}{ !4`}},
		{"not a number", "a/b", `{"a":NaN}`, []string{`a/b json=b:{"a":NaN} !4`}},
		{"utf8", "a/b", "{\"a\":\"\xff\"}", []string{"a/b utf8=b:{\"a\":\"\xff\"} !4"}},
		{"scalar utf8", "a/b", "\xff", []string{"a/b utf8=b:\xff !4"}},
		{"duplicate", "a/b", `{"a":1,"a":2}`, []string{`a/b duplicate=b:{"a":1,"a":2} !4`}},
		{"duplicate by escape", "a/b", `{"a":1,"\u0061":2}`, []string{`a/b duplicate=b:{"a":1,"\u0061":2} !4`}},
		{"broken zigbee", "zigbee2mqtt/hall/lamp", `{`, []string{`hall/lamp json=b:{ !4`}},
		// F29: last_seen is the reading's time.
		{"last_seen iso", "zigbee2mqtt/s", `{"x":1,"last_seen":"2023-11-14T20:00:00.5+01:00"}`, []string{"s x=1 @1699988400500000000/1"}},
		{"last_seen ms", "zigbee2mqtt/s", `{"last_seen":1699988400123,"x":1}`, []string{"s x=1 @1699988400123000000/1"}},
		{"last_seen s", "zigbee2mqtt/s", `{"last_seen":1699988400,"x":1}`, []string{"s x=1 @1699988400000000000/1"}},
		{"last_seen null", "zigbee2mqtt/s", `{"last_seen":null,"x":1}`, []string{"s last_seen=null", "s x=1"}},
		{"last_seen before the clock was set", "zigbee2mqtt/s", `{"last_seen":"1970-01-01T00:00:09Z","x":1}`,
			[]string{"s last_seen=t:1970-01-01T00:00:09Z", "s x=1"}},
		{"last_seen far ahead", "zigbee2mqtt/s", `{"last_seen":1900000000,"x":1}`, []string{"s last_seen=1900000000", "s x=1"}},

		{"slashes in names", "zigbee2mqtt/floor 1/kitchen/lamp", `{"color":{"x":0.3,"y":0.1},"modes":["a",2]}`,
			[]string{"floor 1/kitchen/lamp color.x=0.3", "floor 1/kitchen/lamp color.y=0.1", "floor 1/kitchen/lamp modes.0=t:a", "floor 1/kitchen/lamp modes.1=2"}},
		{"one topic an attribute", "zigbee2mqtt/lamp/temperature", `21.5`, []string{"lamp temperature=21.5 Cel"}},
		{"removed device", "zigbee2mqtt/lamp", ``, nil},
		{"tasmota sensor", "tele/plug/SENSOR", `{"Time":"2023-11-14T20:00:00","ENERGY":{"Power":12.5,"Total":1.0},"DS18B20":{"Temperature":20.1},"TempUnit":"C"}`,
			[]string{"plug ENERGY.Power=12.5 W @1699992000000000000/1", "plug ENERGY.Total=1.0 kWh @1699992000000000000/1",
				"plug DS18B20.Temperature=20.1 @1699992000000000000/1", "plug TempUnit=t:C @1699992000000000000/1"}},
		{"tasmota scalar", "stat/plug/POWER", `ON`, []string{"plug POWER=t:ON"}},
		{"tasmota device first", "plug/tele/STATE", `{"POWER":"OFF"}`, []string{"plug POWER=t:OFF"}},
		{"tasmota command", "cmnd/plug/POWER", `ON`, nil},
		{"tasmota LWT", "tele/plug/LWT", `Online`, nil},
		{"tasmota by rule", "sonoff/tele/p1/STATE", `{"Time":"1970-01-01T00:00:10","POWER":"OFF"}`,
			[]string{"plug p1 Time=t:1970-01-01T00:00:10", "plug p1 POWER=t:OFF"}},
		{"templates", "site/a/b/data", `{"sensor":"dht","ts":"1699988400.25","t":1.50,"h":3}`,
			[]string{"a/b dht.t=1.50 Cel @1699988400250000000/1", "a/b dht.humidity=3 %RH @1699988400250000000/1"}},
		{"template without its field", "site/a/b/data", `{"t":1}`, []string{"a/b t=1 Cel"}},
		{"scalar", "a/b/c", ` 21.50 `, []string{"a/b c=21.50"}},
		{"scalar of one level", "c", `-0`, []string{"c value=-0"}},
		{"scalar bool", "a/c", `true`, []string{"a c=true"}},
		{"scalar null", "a/c", `null`, []string{"a c=null"}},
		{"scalar nothing", "a/c", ``, []string{"a c=null"}},
		{"scalar text", "a/c", ` open `, []string{"a c=t: open "}},
		{"scalar almost a number", "a/c", `01`, []string{"a c=t:01"}},
		{"quoted text", "a/c", `"tür \u00e9"`, []string{"a c=t:tür é"}},
		{"array", "a/c", `[1,{"x":2},[]]`, []string{"a/c 0=1", "a/c 1.x=2"}},
		{"empty object", "a/c", `{}`, nil},
		{"empty name", "a/c", `{"":1,"x":{"":2}}`, []string{"a/c _=1", "a/c x._=2"}},
		{"escaped name", "a/c", `{"t\u00fcr \"x\"":1}`, []string{`a/c tür "x"=1`}},
		{"strict json", "strict/a/b", `5`, []string{"a/b b=5"}},
		{"strict json broken", "strict/a/b", `ON`, []string{"a/b json=b:ON !4"}},
		{"text rule", "text/x", `{"a":1}`, []string{`text said=t:{"a":1}`}},
		{"raw rule", "blob/x", "\x00\xff", []string{"blob x=b:\x00\xff"}},
		{"ignored", "noise/x", `1`, nil},
		{"broker state", "$SYS/broker/uptime", `1`, nil},
		{"announcement", "homeassistant/sensor/x/config", `{"a":1}`, nil},
		{"zigbee by rule", "z/lamp/state", `ON`, []string{"lamp state=t:ON"}},
	}
	for _, tt := range tests {
		// Twice: what was remembered of the topic must not change the result.
		for range 2 {
			got := show(decode(t, d, tt.topic, tt.payload).Readings)
			if !slices.Equal(got, tt.want) {
				t.Errorf("%s: got\n\t%s\nwant\n\t%s", tt.name, strings.Join(got, "\n\t"), strings.Join(tt.want, "\n\t"))
			}
		}
	}
}

// F28: payloads made to cost memory or stack are kept raw, cut where they are
// giant, and counted.
func TestHostilePayloads(t *testing.T) {
	var keys strings.Builder
	for i := range MaxValues + 1 {
		fmt.Fprintf(&keys, `,"k%d":1`, i)
	}
	long := strings.Repeat("k", MaxName+1)
	tests := []struct {
		name, payload, reason string
		kept                  int
	}{
		{"10 MB", strings.Repeat("x", 10<<20), "size", MaxRaw},
		{"300 levels", strings.Repeat(`{"a":`, 300) + "1" + strings.Repeat("}", 300), "depth", 1801},
		{"a million open brackets", strings.Repeat("[", 1<<20), "depth", MaxRaw},
		{"too many values", "{" + keys.String()[1:] + "}", "values", -1},
		{"long name", `{"` + long + `":1}`, "name", -1},
		{"long dotted name", strings.Repeat(`{"`+long[:100]+`":`, 20) + "1" + strings.Repeat("}", 20), "name", -1},
	}
	d := newDecoder(t, DecoderOptions{})
	for _, tt := range tests {
		got := decode(t, d, "a/b", tt.payload).Readings
		if len(got) != 1 || got[0].Flags != reading.FlagRaw || got[0].Name != tt.reason || got[0].Device != "a/b" {
			t.Errorf("%s: got %.200v, want one raw reading %q", tt.name, got, tt.reason)
			continue
		}
		if tt.kept < 0 {
			tt.kept = len(tt.payload)
		}
		if n := len(got[0].Value.Raw()); n != tt.kept || !strings.HasPrefix(tt.payload, got[0].Value.Raw()) {
			t.Errorf("%s: kept %d bytes, want %d", tt.name, n, tt.kept)
		}
	}
	s := d.Stats()
	if s.RawByTopic["a/b"] != uint64(len(tests)) || s.Cut != 2 || s.RawByReason["depth"] != 2 {
		t.Errorf("stats: got %+v", s)
	}
	topic := strings.Repeat("t", 60<<10)
	values := "[" + strings.Repeat("1,", MaxValues-1) + "1]"
	if b := decode(t, d, topic, values).Readings; len(b) != 1 || b[0].Name != "name" || string(b[0].Value.Raw()) != values {
		t.Errorf("%d values of a topic of %d bytes: got %d readings, want a raw one", MaxValues, len(topic), len(b))
	}
	if b := decode(t, d, "a/b", strings.Repeat(`[`, MaxDepth)+"1"+strings.Repeat("]", MaxDepth)); b.Readings[0].Flags != 0 {
		t.Errorf("%d levels: got %v, want them read", MaxDepth, b.Readings)
	}
}

// The capture of a laboratory's broker: every message finds its device and
// names with two rules.
func TestLabCapture(t *testing.T) {
	d := newDecoder(t, DecoderOptions{Rules: []Rule{
		{Topic: "+", Format: FormatJSON, Device: "{node-id}", Time: "timestamp",
			Fields: map[string]Field{"temp-C": {Unit: "Cel"}, "hum-percent": {Unit: "%RH"}, "lux": {Unit: "lx"}}},
		{Topic: "sonoff/tele/+/+", Format: FormatTasmota},
	}})
	file, err := os.ReadFile("../testdata/lab-capture.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	devices := map[string]int{}
	messages := 0
	for line := range bytes.Lines(file) {
		var m struct {
			At             time.Time
			Topic, Payload string
		}
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatal(err)
		}
		arrival := reading.Time{Wall: m.At.UnixNano()}
		b, err := d.Decode(Message{Topic: m.Topic, Payload: []byte(m.Payload), At: arrival})
		if err != nil || len(b.Readings) == 0 {
			t.Fatalf("%s: got %v, %v", line, b, err)
		}
		messages++
		for _, r := range b.Readings {
			devices[r.Device]++
			hasTime := strings.Contains(m.Payload, "imestamp") || strings.Contains(m.Payload, `"Time"`)
			if hasTime != (r.Time.Quality == reading.FromDevice) || r.Flags != 0 || r.Name == "timestamp" || r.Name == "node-id" {
				t.Errorf("%s: got %+v", line, r)
			}
		}
	}
	for _, name := range []string{"SENSOR-NODE-3-LAB", "sensor-node-1", "sonoff-plug-1", "sonoff-lamp-1"} {
		if devices[name] == 0 {
			t.Errorf("device %s: no readings", name)
		}
	}
	if len(devices) != 4 || messages != 59 {
		t.Errorf("got %d messages of devices %v, want 59 of 4", messages, devices)
	}
}

// F29: retained copies are marked, also those that cannot be read.
func TestRetained(t *testing.T) {
	d := newDecoder(t, DecoderOptions{})
	for payload, want := range map[string]reading.Flags{
		`{"a":1}`: reading.FlagRetained, "1": reading.FlagRetained, "{": reading.FlagRetained | reading.FlagRaw} {
		b, err := d.Decode(Message{Topic: "a/b", Payload: []byte(payload), Retained: true, At: at})
		if err != nil || b.Readings[0].Flags != want {
			t.Errorf("%s: got %v, %v, want flags %d", payload, b, err, want)
		}
	}
}

// F14: a device's time is judged by the gateway's clock only if that is set.
func TestDeviceTimeWhileTheClockIsNotSet(t *testing.T) {
	d := newDecoder(t, DecoderOptions{})
	unset := reading.Time{Wall: 5e9, Quality: reading.Unsynchronised, Boot: 1, Mono: 5e9}
	b, err := d.Decode(Message{Topic: "zigbee2mqtt/s", Payload: []byte(`{"x":1,"last_seen":1699988400}`), At: unset})
	want := reading.Time{Wall: 1699988400e9, Quality: reading.FromDevice}
	if err != nil || len(b.Readings) != 1 || b.Readings[0].Time != want {
		t.Errorf("got %v, %v, want time %v", b, err, want)
	}
	b, err = d.Decode(Message{Topic: "zigbee2mqtt/s", Payload: []byte(`{"x":1}`), At: unset})
	if err != nil || b.Readings[0].Time != unset {
		t.Errorf("got %v, %v, want time %v", b, err, unset)
	}
}

func TestAlarms(t *testing.T) {
	d := newDecoder(t, DecoderOptions{Alarms: []AlarmRule{
		{Device: "freezer*", Name: "temperature", Above: "-15.0"},
		{Name: "water_leak", Equals: "true"},
		{Name: "mode", Equals: "panic"},
		{Name: "count", Equals: "3", Below: "0"},
		{Name: "current", Above: "10"},
		{Name: "action"},
	}})
	tests := []struct {
		device, payload string
		want            reading.Lane
	}{
		{"freezer 1", `{"temperature":-14.99999999999999999999}`, reading.Alarm},
		{"freezer 1", `{"temperature":-15.00}`, reading.Live},
		{"freezer 1", `{"temperature":-1.5e1}`, reading.Live},
		{"oven", `{"temperature":200}`, reading.Live},
		{"x", `{"battery":3,"water_leak":true}`, reading.Alarm},
		{"x", `{"water_leak":false}`, reading.Live},
		{"x", `{"mode":"panic"}`, reading.Alarm},
		{"x", `{"mode":"calm"}`, reading.Live},
		{"x", `{"count":3.0}`, reading.Alarm},
		{"x", `{"count":-1}`, reading.Alarm},
		{"x", `{"count":null}`, reading.Live},
		{"x", `{"current":65.535}`, reading.Live}, // no measurement
		{"x", `{"current":65.5}`, reading.Alarm},
		{"x", `{"action":"single"}`, reading.Alarm},
	}
	for _, tt := range tests {
		if got := decode(t, d, "zigbee2mqtt/"+tt.device, tt.payload).Lane; got != tt.want {
			t.Errorf("%s %s: got lane %v, want %v", tt.device, tt.payload, got, tt.want)
		}
	}
}

func TestSinkBatches(t *testing.T) {
	refusal := errors.New("record 3: no value")
	var node string
	d := newDecoder(t, DecoderOptions{
		Alarms: []AlarmRule{{Name: "smoke"}},
		Batches: func(n string, payload []byte, at reading.Time) (reading.Batch, error) {
			node = n
			if string(payload) == "bad" {
				return reading.Batch{}, refusal
			}
			return reading.Batch{Lane: reading.Backfill, Readings: []reading.Reading{
				{Device: n, Name: string(payload), Value: reading.Int(1), Time: at}}}, nil
		}})
	if b := decode(t, d, "sink/n1/batch", "t"); node != "n1" || b.Lane != reading.Backfill {
		t.Errorf("got %v of node %q", b, node)
	}
	if b := decode(t, d, "sink/n1/batch", "smoke"); b.Lane != reading.Alarm {
		t.Errorf("got lane %v, want alarm", b.Lane)
	}
	_, err := d.Decode(Message{Topic: "sink/n1/batch", Payload: []byte("bad")})
	if !errors.Is(err, refusal) || !strings.Contains(err.Error(), "n1") {
		t.Errorf("got error %v, want it to wrap %v and name the node", err, refusal)
	}
	if _, err = newDecoder(t, DecoderOptions{}).Decode(Message{Topic: "sink/n1/batch"}); err == nil {
		t.Error("decoder without Batches: got no error")
	}
	raw := d.Raw(Message{Topic: "sink/n1/batch", Payload: []byte("bad")}, "senml")
	if got := show(raw.Readings[:1]); got[0] != "n1 senml=b:bad !4 @0/0" {
		t.Errorf("raw: got %v", got)
	}
}

func TestState(t *testing.T) {
	d := newDecoder(t, DecoderOptions{})
	for _, m := range [][2]string{
		{"zigbee2mqtt/hall/lamp/availability", "online"},
		{"zigbee2mqtt/hall/lamp/availability", `{"state":"offline"}`},
		{"tele/plug/LWT", "Online"},
		{"zigbee2mqtt/bridge/state", `{"state":"online"}`},
		{"zigbee2mqtt/bridge/devices", `[{},{},{"a":[1]}]`},
		{"zigbee2mqtt/bridge/info", `{"commit":"x","version":"2.1.3"}`},
		{"zigbee2mqtt/bridge/logging", `{"level":"error","message":"timeout"}`},
		{"zigbee2mqtt/bridge/logging", `{"level":"info","message":"fine"}`},
		{"zigbee2mqtt/bridge/devices", `[{`},
	} {
		if b := decode(t, d, m[0], m[1]); len(b.Readings) != 0 {
			t.Errorf("%s: got readings %v", m[0], b.Readings)
		}
	}
	got := d.State()
	wantDevices := []Device{{"hall/lamp", false, at}, {"plug", true, at}}
	wantBridges := []Bridge{{"zigbee2mqtt", true, "2.1.3", 3, 1, "timeout", at}}
	if !slices.Equal(got.Devices, wantDevices) || !slices.Equal(got.Bridges, wantBridges) {
		t.Errorf("got %+v", got)
	}
}

func TestStats(t *testing.T) {
	d := newDecoder(t, DecoderOptions{})
	decode(t, d, "zigbee2mqtt/p", `{"power":-32768,"x":null,"last_seen":5}`)
	decode(t, d, "zigbee2mqtt/bridge/state", "online")
	for i := range maxRawTopics + 5 {
		decode(t, d, fmt.Sprintf("raw/%d", i), "{")
	}
	s := d.Stats()
	if s.Messages != maxRawTopics+7 || s.Readings != maxRawTopics+5+3 || s.Nulls != 1 || s.Invalid != 1 ||
		s.BadTimes != 1 || s.State != 1 || s.ByFormat[FormatZigbee2MQTT] != 2 || s.ByFormat[FormatAuto] != maxRawTopics+5 ||
		s.RawByTopic["other"] != 5 || len(s.RawByTopic) != maxRawTopics+1 || s.RawByReason["json"] != maxRawTopics+5 {
		t.Errorf("got %+v", s)
	}
}

func TestWrongRules(t *testing.T) {
	_, err := NewDecoder(DecoderOptions{
		Rules: []Rule{
			{Topic: "a/#/b", Format: "xml", Device: "{", TimeUnit: "min"},
			{Topic: "ok"},
			{Topic: "a/+x", Name: "{}", Device: "{0}{field}", Invalid: map[string][]string{"p": {"1,5"}}},
			{Topic: "a/b", Device: "{3}"},
			{Topic: ""},
		},
		Alarms:      []AlarmRule{{Above: "hot", Below: "0x1"}},
		Zigbee2MQTT: []string{"z/#"},
	})
	if err == nil {
		t.Fatal("got no error")
	}
	for _, want := range []string{`rule 1: topic "a/#/b" has`, `rule 1: format "xml" is unknown`, `"{" without "}"`, `time_unit "min"`,
		`rule 3`, `"+" next to`, `"{}" is empty`, `level 0`, `"1,5"`, `rule 4`, `asks for level 3`, `rule 5`, `is empty`,
		`alarm 1: above "hot"`, `alarm 1: below "0x1"`, `zigbee2mqtt.base_topics 1: "z/#"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q:\n%v", want, err)
		}
	}
}

// What devices and counters said before a change of rules holds after it, and a
// topic that was met before obeys the new ones.
func TestSetRules(t *testing.T) {
	d := newDecoder(t, DecoderOptions{})
	decode(t, d, "zigbee2mqtt/lamp/availability", "offline")
	if got := show(decode(t, d, "a/b", `{"smoke":true}`).Readings); got[0] != "a/b smoke=true" {
		t.Fatalf("got %v", got)
	}
	if err := d.SetRules(DecoderOptions{Rules: []Rule{{Topic: "a/#/b"}}}); err == nil {
		t.Error("a wrong rule was taken")
	}
	if b := decode(t, d, "a/b", `{"smoke":true}`); len(b.Readings) != 1 || b.Lane != reading.Live {
		t.Errorf("after a wrong rule: got %+v, want the old rules", b)
	}
	if err := d.SetRules(DecoderOptions{Rules: []Rule{{Topic: "a/+", Device: "{2}"}}, Alarms: []AlarmRule{{Name: "smoke"}}}); err != nil {
		t.Fatal(err)
	}
	b := decode(t, d, "a/b", `{"smoke":true}`)
	if got := show(b.Readings); got[0] != "b smoke=true" || b.Lane != reading.Alarm {
		t.Errorf("got %v in lane %v, want the new rules", got, b.Lane)
	}
	if s := d.Stats(); s.Messages != 4 || s.Readings != 3 || len(d.State().Devices) != 1 {
		t.Errorf("got %+v %+v, want all that was counted since the start", s, d.State())
	}
}

// A batch that was pushed counts like a message, and alarm rules hold for it.
func TestPushed(t *testing.T) {
	d := newDecoder(t, DecoderOptions{Alarms: []AlarmRule{{Name: "smoke"}}})
	b := reading.Batch{Lane: reading.Backfill, Readings: []reading.Reading{
		{Device: "n", Name: "x"}, {Device: "n", Name: "smoke", Value: reading.Bool(true)}}}
	d.Pushed(&b)
	if s := d.Stats(); b.Lane != reading.Alarm || s.Messages != 1 || s.Readings != 2 || s.Nulls != 1 || s.Alarms != 1 || s.ByFormat[FormatSenML] != 1 {
		t.Errorf("got lane %v, %+v", b.Lane, s)
	}
}

// Topics and names without end must not fill memory.
func TestBoundedMemory(t *testing.T) {
	d := newDecoder(t, DecoderOptions{Rules: []Rule{{Topic: "t/+", Device: "{id}", Name: "{1}"}}})
	for i := range 2 * maxRoutes {
		decode(t, d, fmt.Sprintf("t/%d", i), fmt.Sprintf(`{"id":"d%d","k%d":1}`, i, i%3000))
	}
	if n := len(d.rules.Load().routes.byTopic); n > maxRoutes {
		t.Errorf("%d routes", n)
	}
	for _, tab := range d.rules.Load().routes.tables {
		if n := len(*tab.known.Load()); n > maxFields+MaxValues {
			t.Errorf("%d fields", n)
		}
	}
	if n := len(d.strings.known); n > maxInterned {
		t.Errorf("%d strings", n)
	}
}

func TestConcurrentDecode(t *testing.T) {
	d := newDecoder(t, DecoderOptions{})
	done := make(chan []string)
	for i := range 4 {
		go func() {
			var last []string
			for j := range 200 {
				b, _ := d.Decode(Message{Topic: fmt.Sprintf("zigbee2mqtt/%d", i), At: at,
					Payload: fmt.Appendf(nil, `{"a":%d,"b%d":"x"}`, i, j)})
				last = show(b.Readings)
			}
			done <- last
		}()
	}
	for range 4 {
		if got := <-done; len(got) != 2 || !strings.HasSuffix(got[1], "b199=t:x") {
			t.Errorf("got %v", got)
		}
	}
}

func TestDecimals(t *testing.T) {
	// Each less than the next, so the order of any two is known.
	order := []string{"-1e999999999999", "-100", "-99.9", "-1e-5", "0", "1e-400", "0.0001", "0.00010001", "0.1", "0.9999999999999999999",
		"1", "1.0000000000000000001", "9.5", "1e1", "10.01", "18446744073709551616", "1e99999999999", "1e999999999999999"}
	order = order[:len(order)-1] // beyond the limit of exponents all are equal
	for i, a := range order {
		for j, b := range order {
			if got, want := parseDecimal(a).compare(parseDecimal(b)), sign(i-j); got != want {
				t.Errorf("%s against %s: got %d, want %d", a, b, got, want)
			}
		}
	}
	for _, pair := range [][2]string{{"0", "-0.00e5"}, {"1.50", "15e-1"}, {"100", "1E+2"}, {"0.00010", "1e-4"}} {
		if got := parseDecimal(pair[0]).compare(parseDecimal(pair[1])); got != 0 {
			t.Errorf("%s against %s: got %d, want 0", pair[0], pair[1], got)
		}
	}
}

func TestDeviceTimes(t *testing.T) {
	lisbon := time.FixedZone("", 3600)
	tests := []struct {
		value reading.Value
		unit  string
		want  int64
		ok    bool
	}{
		{number("1585673980"), TimeAuto, 1585673980e9, true},
		{number("1585673980.123456789"), TimeSeconds, 1585673980123456789, true},
		{number("1.58567398e9"), TimeAuto, 1585673980e9, true},
		{number("1585673980123"), TimeAuto, 1585673980123e6, true},
		{number("1585673980123456"), TimeAuto, 1585673980123456e3, true},
		{number("1585673980123456789"), TimeAuto, 1585673980123456789, true},
		{number("9999999999"), TimeMilliseconds, 9999999999e6, true},
		{number("99999999999999999999"), TimeAuto, 0, false},
		{number("-5"), TimeAuto, 0, false},
		{reading.Text("1585673980"), TimeAuto, 1585673980e9, true},
		{reading.Text("2020-03-31T18:00:21"), TimeAuto, 1585674021e9, true},
		{reading.Text("2020-03-31 18:00:21.5"), TimeISO, 1585674021500e6, true},
		{reading.Text("2020-03-31T17:00:21Z"), TimeISO, 1585674021e9, true},
		{reading.Text("2020-03-31T17:00:21.25+00:00"), TimeISO, 1585674021250e6, true},
		{reading.Text("2020-03-31T19:00:21+0200"), TimeISO, 1585674021e9, true},
		{reading.Text("yesterday"), TimeAuto, 0, false},
		{reading.Text("9999-03-31T19:00:21Z"), TimeAuto, 0, false},
		{reading.Text("2020-03-31T18:00:21"), TimeSeconds, 0, false},
		{number("5"), TimeISO, 0, false},
		{reading.Bool(true), TimeAuto, 0, false},
	}
	for _, tt := range tests {
		got, ok := deviceTime(tt.value, tt.unit, lisbon)
		if got != tt.want || ok != tt.ok {
			t.Errorf("%v %q: got %d %v, want %d %v", tt.value, tt.unit, got, ok, tt.want, tt.ok)
		}
	}
}

func number(s string) reading.Value {
	v, err := reading.Number(s)
	if err != nil {
		panic(err)
	}
	return v
}

func TestTopicsAndGlobs(t *testing.T) {
	for _, tt := range []struct {
		filter, topic string
		want          bool
	}{
		{"a/b", "a/b", true}, {"a/b", "a", false}, {"a", "a/b", false}, {"+/b", "a/b", true}, {"a/#", "a", true},
		{"a/#", "a/b/c", true}, {"#", "a", true}, {"#", "$SYS/x", false}, {"+/x", "$SYS/x", false},
		{"$SYS/#", "$SYS/x", true}, {"a/+/c", "a//c", true}, {"a/+", "a/b/c", false},
	} {
		if got := matches(strings.Split(tt.filter, "/"), strings.Split(tt.topic, "/")); got != tt.want {
			t.Errorf("filter %s, topic %s: got %v, want %v", tt.filter, tt.topic, got, tt.want)
		}
	}
	for _, tt := range []struct {
		pattern, s string
		want       bool
	}{
		{"", "x", true}, {"*", "", true}, {"power*", "power_l1", true}, {"power*", "xpower", false}, {"*a*b", "xaxbxb", true},
		{"*a*b", "xaxbxc", false}, {"a*", "a", true}, {"a", "ab", false}, {"a*c", "a/b/c", true},
	} {
		if got := glob(tt.pattern, tt.s); got != tt.want {
			t.Errorf("pattern %q, text %q: got %v, want %v", tt.pattern, tt.s, got, tt.want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range [][2]string{
		{"zigbee2mqtt/a/b", `{"power":-32768,"x":{"y":[1,null,"é\n"]},"last_seen":"2023-11-14T20:00:00Z"}`},
		{"tele/p/SENSOR", `{"Time":"2023-11-14T20:00:00","E":{"P":1e5}}`},
		{"zigbee2mqtt/bridge/devices", `[{},1]`}, {"zigbee2mqtt/bridge/logging", `{"level":"error","message":"\ud800"}`},
		{"a/availability", `{"state":1}`}, {"a", "21.5"}, {"s/x", `{"id":"q","sensor":true,"ts":1e300}`}, {"s/x", "{\"a\":\"\xff\"}"},
		{"zigbee2mqtt/x/availability", `"online"`}, {"zigbee2mqtt", "[[[[]]]]"},
	} {
		f.Add(seed[0], []byte(seed[1]))
	}
	d := newDecoder(f, DecoderOptions{
		Rules:  []Rule{{Topic: "s/+", Device: "{id}", Name: "{sensor}/{2}", Time: "ts"}},
		Alarms: []AlarmRule{{Name: "*p*", Above: "3"}},
	})
	f.Fuzz(func(t *testing.T, topic string, payload []byte) {
		before := bytes.Clone(payload)
		b, err := d.Decode(Message{Topic: topic, Payload: payload, At: at})
		if err != nil && !strings.HasPrefix(topic, "sink/") {
			t.Fatal(err)
		}
		if !bytes.Equal(before, payload) {
			t.Fatal("payload was changed")
		}
		for _, r := range b.Readings {
			switch {
			case !utf8.ValidString(r.Device) || !utf8.ValidString(r.Name) || r.Name == "" || r.Device == "" && topic != "":
				t.Fatalf("names of %+v", r)
			case r.Value.Kind() == reading.KindNumber && !reading.IsNumber(r.Value.Raw()):
				t.Fatalf("number %q", r.Value.Raw())
			case r.Value.Kind() == reading.KindText && !utf8.ValidString(r.Value.Raw()):
				t.Fatalf("text %q", r.Value.Raw())
			}
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	d := newDecoder(b, DecoderOptions{})
	m := Message{Topic: "zigbee2mqtt/floor/kitchen", At: at,
		Payload: []byte(`{"battery":97,"humidity":41.27,"linkquality":120,"pressure":1013.2,"temperature":21.51,"last_seen":1699988400123,"v":3005}`)}
	b.ReportAllocs()
	b.SetBytes(int64(len(m.Payload)))
	for b.Loop() {
		if _, err := d.Decode(m); err != nil {
			b.Fatal(err)
		}
	}
}
