package senml

import (
	"fmt"
	"strings"
	"testing"

	"sluice/reading"
)

func TestSplitJSON(t *testing.T) {
	pack := `[ {"bn":"d/","bt":1422886740,"bu":"A","n":"a","v":1}, {"n":"b","v":2},{"n":"c","t":1,"v":3},` +
		`{"bn":"e/","n":"d","v":4},{"n":"e","v":5},{ },{"bt":1422886741,"bv":1,"n":"f","v":6},{"n":"g","v":7}]`
	pack = strings.Replace(pack, "{ }", `{ "v":9 }`, 1)
	want, err := DecodeJSON([]byte(pack), options())
	if err != nil {
		t.Fatal(err)
	}
	for records := 1; records <= 9; records++ {
		parts, err := Split([]byte(pack), JSON, records, 1e6)
		if err != nil {
			t.Fatal(err)
		}
		if n := (len(want) + records - 1) / records; len(parts) != n {
			t.Errorf("%d parts of %d records, want %d", len(parts), records, n)
		}
		equal(t, decodeAll(t, parts, options(), DecodeJSON), want)
	}
	parts, err := Split([]byte(pack), JSON, 100, 100)
	if err != nil || len(parts) < 3 {
		t.Fatalf("%d parts of 100 bytes, %v", len(parts), err)
	}
	equal(t, decodeAll(t, parts, options(), DecodeJSON), want)
}

func TestSplitExact(t *testing.T) {
	want := awkward(t)
	exact := Options{Exact: true}
	for records := 1; records < 8; records++ {
		parts, err := Split(AppendJSON(nil, want), JSON, records, 1e6)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, decodeAll(t, parts, exact, DecodeJSON), want)
	}
}

func TestSplitCBOR(t *testing.T) {
	pack := encode(t, []m{{-2: "d/", -3: 1422886740, 0: "a", 2: 1}, {0: "b", 2: 2}, {-2: "e/", 0: "c", 6: 1, 2: 3}, {-5: 1, 0: "d", 2: 4}, {0: "e"}})
	want, err := DecodeCBOR(pack, options())
	if err != nil {
		t.Fatal(err)
	}
	for records := 1; records <= 6; records++ {
		parts, err := Split(pack, CBOR, records, 1e6)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, decodeAll(t, parts, options(), DecodeCBOR), want)
	}
}

func TestSplitErrors(t *testing.T) {
	for in, want := range map[string]string{
		`{}`:                 "pack: is not a JSON array",
		`[]`:                 "pack: has no record",
		`[{"n":"a"},1]`:      "record 1: is not a JSON object",
		`[{"n":"a"},{"n"}]`:  "record 1: is not valid JSON",
		`[{"n":"a","v":1}]x`: "pack: has something after",
	} {
		if _, err := Split([]byte(in), JSON, 10, 1e6); err == nil || !strings.HasPrefix(fmt.Sprint(err), want) {
			t.Errorf("%s: got %v, want %s", in, err, want)
		}
	}
	if _, err := Split([]byte{0}, CBOR, 10, 1e6); err == nil {
		t.Error("a number was split")
	}
}

func decodeAll(t *testing.T, parts [][]byte, o Options, decode func([]byte, Options) ([]reading.Reading, error)) []reading.Reading {
	t.Helper()
	var all []reading.Reading
	for _, part := range parts {
		rs, err := decode(part, o)
		if err != nil {
			t.Fatalf("%s: %v", part, err)
		}
		all = append(all, rs...)
	}
	return all
}
