package senml

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"

	"sluice/reading"
)

var now = reading.Time{Wall: 1_600_000_000e9}

func options() Options { return Options{Device: "node1", Now: now} }

// show writes readings so that a table can hold what is wanted.
func show(rs []reading.Reading) string {
	var lines []string
	for _, r := range rs {
		when := fmt.Sprint(float64(r.Time.Wall) / 1e9)
		if r.Time == now {
			when = "now"
		} else if d := r.Time.Wall - now.Wall; d > -1e15 && d < 1e15 {
			when = fmt.Sprintf("now%+g", float64(d)/1e9)
		}
		lines = append(lines, fmt.Sprintf("%s|%s|%s|%s|%s", r.Device, r.Name, r.Unit, r.Value, when))
	}
	return strings.Join(lines, "\n")
}

func TestDecodeJSON(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"name alone", `[{"n":"urn:dev:ow:10e2073a01080063","u":"Cel","v":23.1}]`,
			"node1|urn:dev:ow:10e2073a01080063|Cel|23.1|now"},
		{"base name of a URN", `[{"bn":"urn:dev:ow:10e2073a01080063:","n":"voltage","u":"V","v":120.1},{"n":"current","u":"A","v":1.2}]`,
			"urn:dev:ow:10e2073a01080063|voltage|V|120.1|now\nurn:dev:ow:10e2073a01080063|current|A|1.2|now"},
		{"last slash", `[{"bn":"site/","n":"kitchen/power","v":1},{"bn":"a/b","n":"c","v":2},{"bn":"x/","n":"y","v":3},{"bn":"x/y","v":4}]`,
			"site/kitchen|power||1|now\na|bc||2|now\nx|y||3|now\nx|y||4|now"},
		{"base time and unit", `[{"bn":"d/","bt":1.276020076e+09,"bu":"A","bver":5,"n":"v","u":"V","v":120.1},{"n":"i","t":-5,"v":1.2},{"n":"i","t":-0.5,"v":1.30}]`,
			"d|v|V|120.1|1.276020076e+09\nd|i|A|1.2|1.276020071e+09\nd|i|A|1.30|1.2760200755e+09"},
		{"relative", `[{"n":"a","v":1,"t":-30.25},{"n":"a","v":2,"t":268435455},{"n":"a","v":3,"t":268435456},{"n":"a","v":4,"t":0}]`,
			"node1|a||1|now-30.25\nnode1|a||2|1.868435455e+09\nnode1|a||3|2.68435456e+08\nnode1|a||4|now"},
		{"relative base", `[{"bn":"d/","bt":-60,"n":"a","v":1},{"n":"a","t":20,"v":2},{"n":"a","t":60,"v":3}]`,
			"d|a||1|now-60\nd|a||2|now-40\nd|a||3|now"},
		{"base value", `[{"bn":"d/","bv":20.1,"n":"a","v":0.2},{"n":"a","v":-20.1},{"n":"a","v":1e2},{"n":"a"},{"n":"b","vs":"x"},{"bv":0.1,"n":"a","v":0.2}]`,
			"d|a||20.3|now\nd|a||0.0|now\nd|a||120.1|now\nd|a||20.1|now\nd|b||x|now\nd|a||0.3|now"},
		{"sum", `[{"n":"p","u":"W","v":5,"s":7},{"n":"p","s":1.5},{"bs":100,"n":"q","v":1},{"n":"q","v":1,"s":0.50}]`,
			"node1|p|W|5|now\nnode1|p.sum|W*s|7|now\nnode1|p.sum||1.5|now\nnode1|q||1|now\nnode1|q.sum||100|now\nnode1|q||1|now\nnode1|q.sum||100.50|now"},
		{"kinds", `[{"n":"a","vs":"é\n"},{"n":"a","vb":true},{"n":"a","vb":false},{"n":"a","vd":"-_8"},{"n":"a","vd":"+/8="},{"n":"a","v":null}]`,
			"node1|a||é\n|now\nnode1|a||true|now\nnode1|a||false|now\nnode1|a||-_8|now\nnode1|a||-_8|now\nnode1|a||null|now"},
		// F26
		{"digits", `[{"n":"a","v":2882429806056571124},{"n":"a","v":23.50},{"n":"a","v":-0},{"n":"a","v":1E400}]`,
			"node1|a||2882429806056571124|now\nnode1|a||23.50|now\nnode1|a||-0|now\nnode1|a||1E400|now"},
		{"unknown and escaped labels", `[{"\u006e":"a","v":1,"x":[{"y":1}],"ut":30,"btq":"nonsense"}]`, "node1|a||1|now"},
		{"space", " [ { \"n\" : \"a\" , \"v\" : 1 } ]\r\n", "node1|a||1|now"},
	} {
		got, err := DecodeJSON([]byte(c.in), options())
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if show(got) != c.want {
			t.Errorf("%s:\ngot\n%s\nwant\n%s", c.name, show(got), c.want)
		}
	}
}

// What is refused, and that the refusal names the record and the remedy.
func TestRecordErrors(t *testing.T) {
	for in, want := range map[string]string{
		``:                                    `pack: is not a JSON array of records: begin with [ (RFC 8428, section 5)`,
		`{"n":"a","v":1}`:                     `pack: is not a JSON array of records: begin with [ (RFC 8428, section 5)`,
		`[]`:                                  `pack: has no record: send at least one`,
		`[{"n":"a","v":1}] x`:                 `pack: has something after its closing ]: send one array`,
		`[{"n":"a","v":1}][]`:                 `pack: has something after its closing ]: send one array`,
		`[1]`:                                 `record 0: is not a JSON object in { }`,
		`[{"n":"a","v":1},{"n":"b","v":1}`:    `record 2: is not valid JSON`,
		`[{"n":"a","v":1},{"n":"b","v":}]`:    `record 1: is not valid JSON`,
		`[{"n":"a","v":1,"v":2}]`:             `record 0: is not valid JSON: duplicate`,
		"[{\"n\":\"a\",\"vs\":\"\xff\"}]":     `record 0: is not valid JSON: invalid UTF-8`,
		`[{"n":"a","v":1},{"n":"a","v":"1"}]`: `record 1: field "v": must be a number without quotes`,
		`[{"n":"a","v":true}]`:                `record 0: field "v": must be a number`,
		`[{"n":1,"v":1}]`:                     `record 0: field "n": must be a string`,
		`[{"n":"a","vb":1}]`:                  `record 0: field "vb": must be true or false`,
		`[{"n":"a","vd":"*"}]`:                `record 0: field "vd": must be base64url`,
		`[{"n":"a","v":1,"vs":"x"}]`:          `record 0: has more than one value`,
		`[{"n":"a","u":"Cel"}]`:               `record 0: has no value: send one of v, vs, vb, vd or s`,
		`[{"v":1}]`:                           `record 0: field "n": is missing`,
		`[{"n":"-a","v":1}]`:                  `record 0: field "n": name "-a" must begin with a letter or digit`,
		`[{"n":"a b","v":1}]`:                 `record 0: field "n": name "a b" may only have`,
		`[{"bn":"é","v":1}]`:                  `record 0: field "bn": name "é" must begin`,
		`[{"n":"a","v":1,"new_":1}]`:          `record 0: field "new_": is not known`,
		`[{"n":"a","v":1,"bver":11}]`:         `record 0: field "bver": is 11; versions up to 10 are understood (RFC 8428)`,
		`[{"n":"a","v":1,"t":1e30}]`:          `record 0: field "t": is beyond the years`,
		`[{"n":"a","v":1,"bt":9e9,"t":9e9}]`:  `record 0: field "t": is too far from the base time`,
		`[{"n":"a","v":1,"t":1e9999999}]`:     `record 0: field "t": has an exponent beyond 1000`,
		`[{"n":"a","v":1e9999,"bv":1}]`:       `record 0: field "v": has an exponent beyond 1000 and cannot be added`,
		`[{"n":"` + strings.Repeat("a", 1025) + `","v":1}]`:         `record 0: field "n": name has 1025 bytes; 1024 are allowed`,
		`[{"n":"a","v":1,"bu":"` + strings.Repeat("a", 129) + `"}]`: `record 0: field "u": unit has 129 bytes; 128 are allowed`,
		`[{"n":"a","bv":` + strings.Repeat("1", 1001) + `}]`:        `record 0: field "bv": is longer than 1000 digits`,
		`[{"n":"a","bv":1,"v":` + strings.Repeat("1", 1001) + `}]`:  `record 0: field "v": is longer than 1000 digits and cannot`,
		`[{"n":"a","x":` + strings.Repeat("[", 1e5):                 `record 0: is not valid JSON: exceeded max depth`, // F28
	} {
		_, err := DecodeJSON([]byte(in), options())
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.60s:\ngot  %v\nwant %s", in, err, want)
		}
		if _, ok := errors.AsType[*RecordError](err); !ok {
			t.Errorf("%.60s: %T, want *RecordError", in, err)
		}
	}
	many := "[" + strings.Repeat(`{"n":"a","v":1},`, reading.MaxBatch) + `{"n":"a","v":1}]`
	if _, err := DecodeJSON([]byte(many), options()); !errors.Is(err, ErrTooMany) {
		t.Errorf("%v, want ErrTooMany", err)
	}
}

// F14: a relative time is as good as the clock it is relative to.
func TestQuality(t *testing.T) {
	unset := reading.Time{Wall: 60e9, Quality: reading.Unsynchronised, Boot: 3, Mono: 50e9}
	in := []byte(`[{"n":"a","v":1},{"n":"a","v":1,"t":-10},{"n":"a","v":1,"t":1422886740}]`)
	for _, c := range []struct {
		now  reading.Time
		want [3]reading.Time
	}{
		{now, [3]reading.Time{now, {Wall: now.Wall - 10e9, Quality: reading.FromDevice}, {Wall: 1422886740e9, Quality: reading.FromDevice}}},
		{unset, [3]reading.Time{unset, {Wall: 50e9, Quality: reading.Unsynchronised, Boot: 3, Mono: 40e9},
			{Wall: 1422886740e9, Quality: reading.FromDevice}}},
	} {
		rs, err := DecodeJSON(in, Options{Now: c.now})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range c.want {
			if rs[i].Time != want {
				t.Errorf("got %+v, want %+v", rs[i].Time, want)
			}
		}
	}
}

type m = map[any]any

func encode(t testing.TB, v any) []byte {
	t.Helper()
	b, err := cbor.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestDecodeCBOR(t *testing.T) {
	tag := func(n uint64, v any) cbor.Tag { return cbor.Tag{Number: n, Content: v} }
	for _, c := range []struct {
		name string
		v    any
		want string
	}{
		{"labels", []m{{-2: "d/", -3: 1276020076.5, -4: "A", -1: 10, 0: "v", 1: "V", 2: 120.1}, {0: "i", 6: -5, 2: 1.2, 7: 30}},
			"d|v|V|120.1|1.2760200765e+09\nd|i|A|1.2|1.2760200715e+09"},
		{"kinds", []m{{0: "a", 3: "ON"}, {0: "a", 4: true}, {0: "a", 4: false}, {0: "a", 8: []byte{0xfb, 0xff}}, {0: "a", 2: nil}},
			"node1|a||ON|now\nnode1|a||true|now\nnode1|a||false|now\nnode1|a||-_8|now\nnode1|a||null|now"},
		{"integers", []m{{0: "a", 2: uint64(math.MaxUint64)}, {0: "a", 2: int64(math.MinInt64)}, {0: "a", 2: cbor.RawMessage{0x3b, 255, 255, 255, 255, 255, 255, 255, 255}}},
			"node1|a||18446744073709551615|now\nnode1|a||-9223372036854775808|now\nnode1|a||-18446744073709551616|now"},
		{"floats", []m{{0: "a", 2: float32(23.7)}, {0: "a", 2: 23.718}, {0: "a", 2: 5e-324}, {0: "a", 2: 23.0}, {0: "a", 2: cbor.RawMessage{0xf9, 0x4d, 0xec}}, {0: "a", 2: math.Copysign(0, -1)}, {0: "a", 2: 1e300}},
			"node1|a||23.7|now\nnode1|a||23.718|now\nnode1|a||5e-324|now\nnode1|a||23|now\nnode1|a||23.6875|now\nnode1|a||-0|now\nnode1|a||1e+300|now"},
		{"decimal fractions", []m{{0: "a", 2: tag(4, []any{-2, 2350})}, {0: "a", 2: tag(4, []any{-3, -7})}, {0: "a", 2: tag(4, []any{2, 5})}, {0: "a", 2: tag(4, []any{-1, tag(2, []byte{1, 0})})}, {0: "a", 2: tag(3, []byte{1, 0})}},
			"node1|a||23.50|now\nnode1|a||-0.007|now\nnode1|a||500|now\nnode1|a||25.6|now\nnode1|a||-257|now"},
		{"sums and unknown fields", []m{{0: "a", 5: 7, "x": []int{1}, 99: 1}}, "node1|a.sum||7|now"},
	} {
		got, err := DecodeCBOR(encode(t, c.v), options())
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if show(got) != c.want {
			t.Errorf("%s:\ngot\n%s\nwant\n%s", c.name, show(got), c.want)
		}
	}
	// The example of RFC 8428, section 6, in indefinite lengths.
	b, _ := hex.DecodeString("9fbf2163642f3a00016161" + "0243010203ffff")
	if _, err := DecodeCBOR(b, options()); err == nil {
		t.Error("a byte string as number was accepted")
	}
	b, _ = hex.DecodeString("9fbf2162642f00616102182affff")
	if got, err := DecodeCBOR(b, options()); err != nil || show(got) != "d|a||42|now" {
		t.Errorf("indefinite lengths: %s, %v", show(got), err)
	}
}

func TestCBORErrors(t *testing.T) {
	for _, c := range []struct {
		v    any
		want string
	}{
		{1, "pack: is not a CBOR array"},
		{[]m{}, "pack: has no record"},
		{[]any{1}, "record 0: is not a CBOR map"},
		{[]m{{0: "a", 2: math.NaN()}}, `record 0: field "v": is not a finite number`},
		{[]m{{0: "a", 2: 1}, {0: "a", 2: math.Inf(1)}}, `record 1: field "v": is not a finite number`},
		{[]m{{0: "a", 2: cbor.RawMessage{0xf9, 0x7c, 0}}}, `record 0: field "v": is not a finite number`},
		{[]m{{0: "a", 2: "1"}}, `record 0: field "v": must be a number`},
		{[]m{{0: "a", 2: cbor.Tag{Number: 5, Content: []int{1, 2}}}}, `record 0: field "v": has tag 5`},
		{[]m{{0: "a", 2: cbor.Tag{Number: 4, Content: []any{int64(math.MaxInt64), 1}}}}, `record 0: field "v": has an exponent beyond 1000`},
		{[]m{{0: "a", 2: cbor.Tag{Number: 4, Content: []any{1}}}}, `record 0: field "v": has a decimal fraction that is not`},
		{[]m{{0: "a", 2: cbor.Tag{Number: 2, Content: make([]byte, 1000)}}}, `record 0: field "v": has a bignum`},
		{[]m{{0: []byte("a"), 2: 1}}, `record 0: field "n": must be a text string`},
		{[]m{{0: "a", "x_": 1}}, `record 0: field "x_": is not known`},
		{[]m{{1.5: "a"}}, `record 0: has a label`},
		{cbor.RawMessage{0x9b, 0, 0, 0, 1, 0, 0, 0, 0}, `pack:`},
		{cbor.RawMessage{0x81, 0xa2, 0, 0x61, 'a', 0, 0x61, 'a'}, `record 0: is not a CBOR map of fields`},
	} {
		var b []byte
		if raw, ok := c.v.(cbor.RawMessage); ok {
			b = raw
		} else {
			b = encode(t, c.v)
		}
		if _, err := DecodeCBOR(b, options()); err == nil || !strings.HasPrefix(err.Error(), c.want) && !errors.Is(err, ErrTooMany) {
			t.Errorf("%x:\ngot  %v\nwant %s", b, err, c.want)
		}
	}
	many := make([]int, reading.MaxBatch+1)
	if _, err := DecodeCBOR(encode(t, many), options()); !errors.Is(err, ErrTooMany) {
		t.Errorf("%v, want ErrTooMany", err)
	}
}

func TestDecimals(t *testing.T) {
	for _, c := range []struct{ a, b, want string }{
		{"0.1", "0.2", "0.3"}, {"20.10", "0.2", "20.30"}, {"-1", "1.0", "0.0"}, {"1e3", "1", "1001"},
		{"1e-3", "-1", "-0.999"}, {"9007199254740993", "1", "9007199254740994"}, {"0", "0", "0"},
	} {
		if got, err := addLiterals(c.a, c.b); err != nil || got != c.want {
			t.Errorf("%s + %s = %s, %v, want %s", c.a, c.b, got, err, c.want)
		}
	}
	for seconds, want := range map[string]int64{
		"1": 1e9, "-1.5": -1500000000, "1e-9": 1, "1e-10": 0, "0.1234567899": 123456789, "1.42288674e9": 1422886740e9,
		"0": 0, "-0": 0, "0e5": 0, "9223372036.854775807": math.MaxInt64, "-9223372036.854775808": math.MinInt64,
	} {
		if got, err := nanoseconds(seconds); err != nil || got != want {
			t.Errorf("%s s = %d ns, %v, want %d", seconds, got, err, want)
		}
	}
	for _, seconds := range []string{"9223372036.854775808", "1e19", "1e999"} {
		if got, err := nanoseconds(seconds); err == nil {
			t.Errorf("%s s = %d ns, want an error", seconds, got)
		}
	}
}

func FuzzDecodeJSON(f *testing.F) {
	f.Add(AppendJSON(nil, awkward(f)), true)
	f.Add([]byte(`[{"bn":"urn:dev:ow:10e2073a01080063:","bt":-60,"bu":"A","bv":1.5,"bs":2,"n":"v","v":120.1,"s":1},{"n":"i","t":-5,"vs":"x"}]`), false)
	f.Add([]byte(`[{"n":"a","vd":"-_8","flags":["raw"],"tboot":"1"}]`), true)
	f.Fuzz(func(t *testing.T, b []byte, exact bool) {
		rs, err := DecodeJSON(b, Options{Device: "d", Now: now, Exact: exact})
		check(t, rs, err)
	})
}

func FuzzDecodeCBOR(f *testing.F) {
	f.Add(encode(f, []m{{-2: "d/", -3: 1276020076.5, 0: "v", 1: "V", 2: 120.1}, {0: "i", 2: cbor.Tag{Number: 4, Content: []any{-2, 2350}}}}))
	f.Add(encode(f, []m{{0: "a", 3: "ON"}, {0: "a", 4: true}, {0: "a", 8: []byte{1}}, {0: "a", 2: cbor.Tag{Number: 2, Content: []byte{1}}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		rs, err := DecodeCBOR(b, Options{Device: "d", Now: now})
		check(t, rs, err)
	})
}

// check tries that what was read can be written and read again.
func check(t *testing.T, rs []reading.Reading, err error) {
	if err != nil {
		if _, ok := errors.AsType[*RecordError](err); !ok && !errors.Is(err, ErrTooMany) {
			t.Fatalf("%T: %v", err, err)
		}
		return
	}
	again, err := DecodeJSON(AppendJSON(nil, rs), Options{Exact: true})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, again, rs)
}
