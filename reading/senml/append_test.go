package senml

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"sluice/reading"
)

func num(t testing.TB, literal string) reading.Value {
	t.Helper()
	v, err := reading.Number(literal)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func equal(t testing.TB, got, want []reading.Reading) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %d readings, want %d: %+v", len(got), len(want), got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("reading %d:\ngot  %+v\nwant %+v", i, got[i], want[i])
		}
	}
}

const start = 1422886740_123_000_000

func at(ms int64) reading.Time { return reading.Time{Wall: start + ms*1e6} }

func TestAppendJSON(t *testing.T) {
	office := func(name, unit, v string, ms int64) reading.Reading {
		return reading.Reading{Device: "office", Name: name, Unit: unit, Value: num(t, v), Time: at(ms)}
	}
	for _, c := range []struct {
		name string
		rs   []reading.Reading
		want string
	}{
		{"none", nil, `[]`},
		{"one message", []reading.Reading{office("temperature", "Cel", "23.70", 0), office("co2", "ppm", "749", 0)},
			`[{"bn":"office/","bt":1422886740.123,"n":"temperature","u":"Cel","v":23.70},{"n":"co2","u":"ppm","v":749}]`},
		{"one value a message", []reading.Reading{office("co2", "", "1", 0), office("co2", "", "2", 1877), office("co2", "", "3", -123)},
			`[{"bn":"office/","bt":1422886740.123,"n":"co2","v":1},{"t":1.877,"n":"co2","v":2},{"t":-0.123,"n":"co2","v":3}]`},
		{"messages of two", []reading.Reading{office("a", "", "1", 0), office("a", "", "2", 877), office("b", "", "3", 877)},
			`[{"bn":"office/","bt":1422886740.123,"n":"a","v":1},{"bt":1422886741,"n":"a","v":2},{"n":"b","v":3}]`},
		{"two devices", []reading.Reading{
			{Device: "a/b", Name: "state", Value: reading.Text("ON \"\n\x01é"), Time: at(0)},
			{Device: "c", Name: "on", Value: reading.Bool(false), Time: at(0)},
		}, `[{"bn":"a/b/","bt":1422886740.123,"n":"state","vs":"ON \"\n\u0001é"},{"bn":"c/","n":"on","vb":false}]`},
		{"unsynchronised", []reading.Reading{
			{Device: "d", Name: "n", Time: reading.Time{Wall: 5.5e9, Quality: reading.Unsynchronised, Boot: 7, Mono: 15.25e9}},
			{Device: "d", Name: "n", Value: reading.Bytes([]byte{0xfb, 0xff}), Flags: reading.FlagInvalid | reading.FlagRaw,
				Time: reading.Time{Wall: start, Quality: reading.FromDevice}},
		}, `[{"bn":"d/","twall":5.5,"btq":"unsynchronised","tboot":"7","tmono":15.25,"n":"n","vs":"","null":true},` +
			`{"bt":1422886740.123,"btq":"device","n":"n","flags":["invalid","raw"],"vd":"-_8"}]`},
		{"names", []reading.Reading{{Device: "Büro 1", Name: "a/b", Value: num(t, "1"), Time: at(0)}},
			`[{"bn":"B_c3_bcro_201/","bdevice":"Büro 1","bt":1422886740.123,"n":"a_2fb","name":"a/b","v":1}]`},
	} {
		got := string(AppendJSON(nil, c.rs))
		want := strings.ReplaceAll(c.want, "\n", `\n`)
		if got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, got, want)
		}
	}
}

// awkward tries everything that a reading can be.
func awkward(t testing.TB) []reading.Reading {
	r := func(device, name string, v reading.Value) reading.Reading {
		return reading.Reading{Device: device, Name: name, Value: v, Time: at(0)}
	}
	rs := []reading.Reading{
		r("a", "n", reading.Value{}), r("a", "n", reading.Bool(true)), r("a", "n", reading.Bool(false)),
		r("a", "n", reading.Text("")), r("a", "n", reading.Text("\"\\/\b\f\n\r\t\x00\u2028é😀")),
		r("a", "n", reading.Bytes(nil)), r("a", "n", reading.Bytes([]byte{0, 255, 254, 1, 2})),
		r("a", "n", reading.Bytes([]byte(strings.Repeat("x\xff", 100)))),
		r("", "n", reading.Int(1)), r("", "", reading.Int(1)), r("a", "", reading.Int(1)), r("a/", "/", reading.Int(1)),
		r("/a", "b:c", reading.Int(1)), r("-a", "-", reading.Int(1)), r("Küche Lampe", "é", reading.Int(1)),
		r("Küche Lampe", "é", reading.Int(2)), r("a:b:", "c", reading.Int(1)), r("plain", "color.x", reading.Int(1)),
	}
	for _, literal := range []string{"0", "-0", "23.50", "1e5", "1E-7", "2882429806056571124", "-1" + strings.Repeat("0", 400)} {
		rs = append(rs, r("a", "n", num(t, literal)))
	}
	for i, wall := range []int64{0, 1, -1, math.MinInt64, math.MaxInt64, relative - 1, relative, relative + 1, start} {
		rs = append(rs, reading.Reading{Device: "t", Time: reading.Time{Wall: wall, Quality: reading.Quality(i % 3)}})
	}
	for _, mono := range []int64{1, -1, math.MinInt64, math.MaxInt64, 90e9} {
		rs = append(rs, reading.Reading{Device: "t", Unit: "\"", Flags: reading.FlagRetained,
			Time: reading.Time{Wall: 1, Quality: reading.Unsynchronised, Boot: math.MaxUint64, Mono: mono}})
	}
	return append(rs, r("a", "n", reading.Int(9)))
}

// An oracle reads back from the collector exactly what was stored.
func TestExact(t *testing.T) {
	want := awkward(t)
	b := AppendJSON(nil, want)
	got, err := DecodeJSON(b, Options{Exact: true})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, got, want)
	if !json.Valid(b) {
		t.Error("the standard library does not read it")
	}
	for i := range want { // in any company, and alone
		got, err := DecodeJSON(AppendJSON(nil, want[i:i+1]), Options{Exact: true})
		if err != nil {
			t.Fatal(err)
		}
		equal(t, got, want[i:i+1])
	}
	// A reader that knows only the RFC finds valid names and values in it.
	if _, err := DecodeJSON(AppendJSON(nil, []reading.Reading{{Device: "Büro 1", Name: "a/b", Value: reading.Int(1)}}), Options{}); err != nil {
		t.Error(err)
	}
}

func TestInvalidUTF8(t *testing.T) {
	b := AppendJSON(nil, []reading.Reading{{Device: "a\xffb", Name: "\xff", Unit: "x\xff\xfe", Value: reading.Text("y")}})
	got, err := DecodeJSON(b, Options{Exact: true})
	if err != nil {
		t.Fatal(err)
	}
	if r := got[0]; r.Device != "a\uFFFDb" || r.Name != "\uFFFD" || r.Unit != "x\uFFFD\uFFFD" {
		t.Errorf("got %+v", r)
	}
}

func messages() []reading.Reading {
	var rs []reading.Reading
	for i := range 100 {
		for _, name := range []string{"temperature", "humidity", "light", "co2", "occupancy", "linkquality"} {
			v, _ := reading.Number(fmt.Sprintf("%d.%d", i, len(name)))
			rs = append(rs, reading.Reading{Device: fmt.Sprint("office-", i%20), Name: name, Unit: "Cel", Value: v, Time: at(int64(i) * 61)})
		}
	}
	return rs
}

func BenchmarkAppendJSON(b *testing.B) {
	rs := messages()
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst = AppendJSON(dst[:0], rs)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(rs)), "ns/reading")
	b.ReportMetric(float64(len(dst))/float64(len(rs)), "B/reading")
}

func BenchmarkDecodeJSON(b *testing.B) {
	rs := messages()
	data := AppendJSON(nil, rs)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeJSON(data, Options{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(rs)), "ns/reading")
}
