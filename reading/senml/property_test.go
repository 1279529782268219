package senml

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"sluice/reading"
)

// randomReadings makes readings of every kind, biased towards what repeats, as
// real ones do, and towards the ends of each range.
func randomReadings(random *rand.Rand, n int) []reading.Reading {
	pick := func(list ...string) string { return list[random.IntN(len(list))] }
	digits := func(most int) string {
		b := make([]byte, 1+random.IntN(most))
		for i := range b {
			b[i] = byte('0' + random.IntN(10))
		}
		return string(b)
	}
	number := func() reading.Value {
		s := pick("", "", "-") + pick("0", "1"+digits(3), "7"+digits(25))
		s += pick("", "."+digits(3), "."+digits(30)) + pick("", "", "", "e"+digits(2), "E-"+digits(2), "e+"+digits(3))
		v, err := reading.Number(s)
		if err != nil {
			panic(err)
		}
		return v
	}
	text := func() string {
		var b strings.Builder
		for range random.IntN(12) {
			b.WriteRune([]rune("aZ09 _-/:.\"\\\n\x00\x7fé中\u2028😀�")[random.IntN(20)])
		}
		return b.String()
	}
	value := func() reading.Value {
		switch random.IntN(8) {
		case 0:
			return reading.Value{}
		case 1:
			return reading.Bool(random.IntN(2) == 0)
		case 2:
			return reading.Text(text())
		case 3:
			b := make([]byte, random.IntN(200))
			for i := range b {
				b[i] = byte(random.Uint32())
			}
			return reading.Bytes(b)
		case 4:
			return reading.Int(int64(random.Uint64()))
		}
		return number()
	}
	instant := func() int64 {
		switch random.IntN(6) {
		case 0:
			return []int64{math.MinInt64, math.MaxInt64, -1, 0, 1, relative - 1, relative}[random.IntN(7)]
		case 1:
			return int64(random.Uint64())
		}
		return start + random.Int64N(100)*[]int64{1, 1e3, 1e6, 1e9}[random.IntN(4)]
	}
	devices := []string{"kitchen", "kitchen/lamp", "0x00158d0001a2b3c4", text(), text()}
	names := []string{"temperature", "color.x", "", text(), text()}
	units := []string{"", "", "Cel", "%RH", text()}
	var rs []reading.Reading
	for len(rs) < n {
		r := reading.Reading{Device: pick(devices...), Time: reading.Time{Wall: instant(), Quality: reading.Quality(random.IntN(3))}}
		if r.Time.Quality == reading.Unsynchronised {
			r.Time.Boot, r.Time.Mono = random.Uint64()>>random.IntN(64), instant()
		}
		for range 1 + random.IntN(4) {
			r.Name, r.Unit, r.Value, r.Flags = pick(names...), pick(units...), value(), 0
			if random.IntN(4) == 0 {
				r.Flags = reading.Flags(random.IntN(8))
			}
			rs = append(rs, r)
		}
	}
	return rs
}

// Promise 5: whatever a sensor says arrives exactly, through the store's
// encoding and the collector's pack; and a reader that knows nothing but the
// RFC accepts the pack, and finds each value under a name and a time of its own.
func TestValuesArriveExactly(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	for round := range 300 {
		want := randomReadings(random, 1+random.IntN(60))
		stored, err := reading.DecodeBatch(reading.AppendBatch(nil, want))
		if err != nil {
			t.Fatalf("seed %d, round %d: %v", seed, round, err)
		}
		pack := AppendJSON(nil, stored)
		got, err := DecodeJSON(pack, Options{Exact: true})
		if err != nil {
			t.Fatalf("seed %d, round %d: %v in %s", seed, round, err, pack)
		}
		for i := range max(len(want), len(got)) {
			if i >= len(got) || i >= len(want) || got[i] != want[i] {
				t.Fatalf("seed %d, round %d, reading %d of %d: got %+v, want %+v", seed, round, i, len(want), got[i:], want[i:])
			}
		}
		strictly(t, pack, want)
	}
}

var legalName = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9:./_]*$`)

// strictly reads a pack as RFC 8428 alone says, and compares what that can say.
func strictly(t *testing.T, pack []byte, want []reading.Reading) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(string(pack)))
	d.UseNumber()
	var records []map[string]any
	if err := d.Decode(&records); err != nil {
		t.Fatal(err)
	}
	if len(records) != len(want) {
		t.Fatalf("got %d records, want %d", len(records), len(want))
	}
	base, baseTime := "", new(big.Rat)
	measured := map[string]string{} // by name: whose it is
	for i, r := range records {
		values := 0
		for label, v := range r {
			switch label {
			case "bn":
				base = v.(string)
			case "bt":
				baseTime, _ = new(big.Rat).SetString(v.(json.Number).String())
			case "v", "vs", "vb", "vd":
				values++
			}
			if strings.HasSuffix(label, "_") {
				t.Fatalf("record %d: label %q must be understood by all", i, label)
			}
		}
		if values != 1 {
			t.Fatalf("record %d has %d values: %v", i, values, r)
		}
		n, _ := r["n"].(string)
		name := base + n
		if !legalName.MatchString(name) {
			t.Fatalf("record %d: name %q", i, name)
		}
		whose := fmt.Sprintf("%q of %q", want[i].Name, want[i].Device)
		if before, ok := measured[name]; ok && before != whose {
			t.Fatalf("record %d: %q is the name of %s and of %s", i, name, before, whose)
		}
		measured[name] = whose
		at := new(big.Rat).Set(baseTime)
		if own, ok := r["t"].(json.Number); ok {
			own, _ := new(big.Rat).SetString(own.String())
			at.Add(at, own)
		}
		wall := big.NewRat(want[i].Time.Wall, 1e9)
		if want[i].Time.Wall < relative {
			wall.SetInt64(0) // no absolute time: "now"
		}
		if at.Cmp(wall) != 0 {
			t.Fatalf("record %d: time %s, want %s", i, at, wall)
		}
		if own, ok := r["v"].(json.Number); ok && own.String() != want[i].Value.Raw() {
			t.Fatalf("record %d: value %s, want %s", i, own, want[i].Value)
		}
	}
}

func TestNamesStayApart(t *testing.T) {
	rs := []reading.Reading{}
	for _, device := range []string{"Sensor 1", "Sensor_1", "Sensor-1", "Küche", "Köche", "a/b"} {
		for _, name := range []string{"x y", "x_y", "x/y", "xäy"} {
			rs = append(rs, reading.Reading{Device: device, Name: name, Value: reading.Int(1), Time: at(0)})
		}
	}
	strictly(t, AppendJSON(nil, rs), rs)
}
