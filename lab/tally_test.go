package lab

import (
	"encoding/json"
	"strings"
	"testing"
)

// played returns the records that message m of a feed becomes.
func played(t *testing.T, s *Sensors, m uint64) []Record {
	t.Helper()
	topic, payload := s.Compose(nil, m)
	device := strings.TrimPrefix(topic, "zigbee2mqtt/")
	var fields map[string]json.Number
	if err := json.Unmarshal(payload, &fields); err != nil {
		t.Fatal(err)
	}
	var rs []Record
	for _, name := range SensorFields {
		rs = append(rs, Record{Lane: "live", Device: device, Name: name, Kind: KindNumber, Value: fields[name].String()})
	}
	return rs
}

func TestTallyFindsEveryFault(t *testing.T) {
	tests := []struct {
		name  string
		plays []uint64 // messages of the feed, in the stream's order
		twist func(rs []Record) []Record
		want  Result
	}{
		{name: "all well", plays: []uint64{0, 1, 2, 3}, want: Result{Delivered: 4}},
		{name: "lost", plays: []uint64{0, 1, 3}, want: Result{Delivered: 3, Lost: 1}},
		{name: "doubled", plays: []uint64{0, 1, 2, 3, 3}, want: Result{Delivered: 4, Doubled: 1}},
		{name: "devices out of step", plays: []uint64{1, 0, 3, 2}, want: Result{Delivered: 4}},
		{name: "disordered", plays: []uint64{2, 0, 1, 3}, want: Result{Delivered: 4, Disordered: 1}},
		{name: "not acknowledged", plays: []uint64{0, 1, 2, 3, 4}, want: Result{Delivered: 4, Unasked: 1}},
		{name: "torn", plays: []uint64{0, 1, 2, 3}, twist: func(rs []Record) []Record { return append(rs[:1:1], rs[2:]...) },
			want: Result{Delivered: 3, Lost: 1, Wrong: 5}},
		{name: "wrong value", plays: []uint64{0, 1, 2, 3}, twist: func(rs []Record) []Record { rs[2].Value += "0"; return rs },
			want: Result{Delivered: 4, Wrong: 1}},
		{name: "another lane's order", plays: []uint64{2, 0, 1, 3}, twist: func(rs []Record) []Record {
			for i := range rs[:len(SensorFields)] {
				rs[i].Lane = "backfill"
			}
			return rs
		}, want: Result{Delivered: 4}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			feed := NewSensors(0, 2)
			tally := NewTally([]*Sensors{feed})
			var rs []Record
			for _, m := range test.plays {
				rs = append(rs, played(t, feed, m)...)
			}
			if test.twist != nil {
				rs = test.twist(rs)
			}
			for _, r := range rs {
				tally.Add(r)
			}
			p := &publisher{next: 5}
			for m := range uint64(4) {
				p.acked.set(m)
				p.count.Add(1)
			}
			got := tally.Compare(&Load{publishers: []*publisher{p}})
			got.Fault = ""
			test.want.Sent, test.want.Acked = 5, 4
			if got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestMessageOfPacketID(t *testing.T) {
	for _, m := range []uint64{0, 1, 65533, 65534, 65535, 65536, 1 << 20} {
		for _, behind := range []uint64{0, 1, 99} {
			base := m - min(m, behind)
			if got, ok := messageOf(packetID(m), base); !ok || got != m {
				t.Errorf("message %d from base %d: got %d, %v", m, base, got, ok)
			}
		}
	}
	if _, ok := messageOf(0, 5); ok {
		t.Error("packet identifier 0 was taken for a message's")
	}
}
