package lab

import (
	"encoding/json"
	"testing"
)

func TestSensorsComposeWhatZigbeeSensorsSend(t *testing.T) {
	s := NewSensors(3, 4)
	topic, payload := s.Compose(nil, 4*123456+2)
	if want := "zigbee2mqtt/lab-03-02"; topic != want {
		t.Errorf("topic: got %q, want %q", topic, want)
	}
	if len(payload) < 105 || len(payload) > 125 {
		t.Errorf("payload of %d bytes, want about 115: %s", len(payload), payload)
	}
	var fields map[string]json.Number
	if err := json.Unmarshal(payload, &fields); err != nil {
		t.Fatalf("payload %s: %v", payload, err)
	}
	if got, want := fields["n"].String(), "123456"; got != want {
		t.Errorf("n: got %s, want %s", got, want)
	}
	if got, want := len(fields), len(SensorFields); got != want {
		t.Errorf("fields: got %d, want %d", got, want)
	}
	_, again := s.Compose(nil, 4*123456+2)
	if string(again) != string(payload) {
		t.Errorf("the same message twice: %s, then %s", payload, again)
	}
}

func TestOfficePlaysEveryRowOnce(t *testing.T) {
	o, err := LoadOffice("../testdata")
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]int)
	for minute := range o.Minutes() {
		for room := range uint64(Rooms) {
			seen[o.row(room, minute)[0]]++
		}
	}
	if got, want := uint64(len(seen)), o.Minutes()*Rooms; got != want {
		t.Errorf("different rows: got %d, want %d", got, want)
	}
	topic, payload := o.Compose(nil, 0)
	want := `{"temperature":23.7,"humidity":26.272,"illuminance":585.2,"co2":749.2,"humidity_ratio":0.00476416302416414,"occupancy":1}`
	if topic != "zigbee2mqtt/office-01" || string(payload) != want {
		t.Errorf("first message: got %s %s, want %s", topic, payload, want)
	}
}

func TestReplayKnowsItsReadings(t *testing.T) {
	r, err := LoadReplay("../testdata")
	if err != nil {
		t.Fatal(err)
	}
	for m := range uint64(10 * MinuteMessages) {
		topic, payload := r.Compose(nil, m)
		if !json.Valid(payload) {
			t.Fatalf("message %d on %s is no JSON: %s", m, topic, payload)
		}
		entries, err := r.entries(m)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) == 0 {
			t.Errorf("message %d on %s has no readings: %s", m, topic, payload)
		}
		for _, e := range entries {
			if e.Device == "" || e.Kind == 0 {
				t.Errorf("message %d on %s: entry %+v is incomplete", m, topic, e)
			}
		}
	}
}
