package jsonl

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"strconv"
	"testing"

	"sluice/collector"
	"sluice/reading"
)

// line is a line as a consumer decodes it.
type line struct {
	Seq, Last            uint64
	Gateway, Epoch, Lane string
	Device, Name, Unit   string
	Value                json.RawMessage
	Bytes                *string
	Time                 string
	TimeNS               int64  `json:"time_ns"`
	TimeQuality          string `json:"time_quality"`
	Boot                 string
	MonoNS               int64 `json:"mono_ns"`
	Flags                []string
	Unreadable           *string
}

func (l line) delivery(t *testing.T) collector.Delivery {
	t.Helper()
	var raw []byte
	if l.Bytes != nil {
		var err error
		if raw, err = base64.RawURLEncoding.DecodeString(*l.Bytes); err != nil {
			t.Fatal(err)
		}
	}
	if l.Unreadable != nil {
		return collector.Delivery{First: l.Seq, Count: int(l.Last - l.Seq + 1), Unreadable: raw, Reason: *l.Unreadable}
	}
	r := reading.Reading{Device: l.Device, Name: l.Name, Unit: l.Unit, Time: reading.Time{Wall: l.TimeNS, Mono: l.MonoNS}}
	switch l.TimeQuality {
	case "device":
		r.Time.Quality = reading.FromDevice
	case "unsynchronised":
		r.Time.Quality = reading.Unsynchronised
		boot, err := strconv.ParseUint(l.Boot, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		r.Time.Boot = boot
	}
	for _, f := range l.Flags {
		r.Flags |= map[string]reading.Flags{
			"invalid": reading.FlagInvalid, "retained": reading.FlagRetained, "raw": reading.FlagRaw}[f]
	}
	switch {
	case l.Bytes != nil:
		r.Value = reading.Bytes(raw)
	case string(l.Value) == "true", string(l.Value) == "false":
		r.Value = reading.Bool(string(l.Value) == "true")
	case l.Value[0] == '"':
		var s string
		if err := json.Unmarshal(l.Value, &s); err != nil {
			t.Fatal(err)
		}
		r.Value = reading.Text(s)
	case string(l.Value) != "null":
		v, err := reading.Number(string(l.Value))
		if err != nil {
			t.Fatal(err)
		}
		r.Value = v
	}
	return collector.Delivery{First: l.Seq, Count: 1, Readings: []reading.Reading{r}}
}

// read returns what a stream's files hold, as a consumer reads them.
func read(t *testing.T, folder string, s collector.Stream) []collector.Delivery {
	t.Helper()
	paths, err := ofEpoch(folder, s.Epoch)
	if err != nil {
		t.Fatal(err)
	}
	var ds []collector.Delivery
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for text := range bytes.Lines(data) {
			var l line
			if err := json.Unmarshal(text, &l); err != nil {
				t.Fatalf("%s: %q: %v", path, text, err)
			}
			if l.Gateway != s.Gateway || l.Lane != s.Lane.String() || hex(t, l.Epoch) != s.Epoch {
				t.Fatalf("%s: %q is of another stream than %v", path, text, s)
			}
			ds = append(ds, l.delivery(t))
		}
	}
	return ds
}
