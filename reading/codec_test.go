package reading

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
)

var update = flag.Bool("update", false, "write the golden vectors anew")

func num(t testing.TB, literal string) Value {
	t.Helper()
	v, err := Number(literal)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// awkward are batches that try every column and every kind of value.
func awkward(t testing.TB) map[string][]Reading {
	r := func(name string, v Value) Reading {
		return Reading{Device: "kitchen/lamp", Name: name, Value: v, Time: Time{Wall: 1422886740e9}}
	}
	numbers := []string{
		"0", "1", "-1", "23.50", "1e5", "1E-7", "-0", "-0.0", "0.0", "0.00", "-0.5", "1.10", "65.535",
		// F26: integers of 64 bits and beyond stay whole.
		"2882429806056571124", "9223372036854775807", "-9223372036854775807", "-9223372036854775808",
		"18446744073709551615", "123456789012345678901234567890",
		"0.00477266099212519", "572.666666666667", "0.00000000000000000000000001",
		"0.000000000000000000000000001", "922337203685477579.9", "922337203685477580.8",
		"1" + strings.Repeat("0", 400), "0." + strings.Repeat("3", 400), "1e400", "-2.5e+10",
	}
	all := map[string][]Reading{
		"empty": nil,
		"one":   {r("temperature", num(t, "23.718"))},
		"kinds": {
			r("a", Value{}), r("a", Bool(true)), r("a", Bool(false)), r("a", Text("")), r("a", Text("ON")),
			r("a", Bytes(nil)), r("a", Bytes([]byte{0, 255, 254})), r("b", Text("ON")), r("a", num(t, "1e5")),
			r("b", Value{}), r("b", num(t, "7")), r("a", num(t, "7.0")), r("c", Value{}), r("c", num(t, "6.5")),
		},
		"names": {
			{}, {Device: "x"}, {Name: "x"}, {Unit: "x"}, {Device: "x", Name: "x", Unit: "x"}, {},
			{Device: "Wohnzimmer Lämpchen", Name: "color.x", Unit: "%RH", Value: Bool(true)},
		},
		"times": {
			{Time: Time{Wall: math.MinInt64}}, {Time: Time{Wall: math.MaxInt64}}, {Time: Time{Wall: 0}},
			{Time: Time{Wall: -1}}, {Time: Time{Wall: 1}},
		},
		"marks": {
			{Flags: FlagInvalid}, {Flags: FlagInvalid}, {Flags: FlagRetained | FlagRaw},
			{Time: Time{Wall: 5e9, Quality: FromDevice}}, {},
			{Time: Time{Wall: 6e9, Quality: Unsynchronised, Boot: math.MaxUint64, Mono: 15_250_000_000}},
			{Time: Time{Wall: 7e9, Quality: Unsynchronised, Boot: math.MaxUint64, Mono: 16_250_000_000}},
			{Time: Time{Wall: 8e9, Quality: Unsynchronised, Boot: 1, Mono: -5}},
		},
	}
	for _, literal := range numbers {
		all["numbers"] = append(all["numbers"], r("n", num(t, literal)))
		all["number "+fmt.Sprintf("%.30s", literal)] = []Reading{r("n", num(t, literal))}
	}
	// Several devices that take turns, in changing order.
	for i, d := range []int{0, 1, 2, 0, 1, 2, 2, 1, 0, 3, 0, 1, 2, 3} {
		for j, name := range []string{"t", "h", "p"}[:3-d%2] {
			all["turns"] = append(all["turns"], Reading{
				Device: fmt.Sprint("d", d), Name: name, Value: Int(int64(i*j + d)),
				Time: Time{Wall: 1422886740123e6 + int64(i)*61e6},
			})
		}
	}
	return all
}

func TestRoundTrip(t *testing.T) {
	for name, rs := range awkward(t) {
		t.Run(name, func(t *testing.T) {
			b := AppendBatch([]byte("before"), rs)
			if !bytes.HasPrefix(b, []byte("before")) {
				t.Fatal("what stood in dst is gone")
			}
			b = b[len("before"):]
			got, err := DecodeBatch(b)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, got, rs)
			count, unsynchronised, err := BatchInfo(b)
			if err != nil || count != len(rs) || unsynchronised != anyUnsynchronised(rs) {
				t.Errorf("BatchInfo = %d, %v, %v", count, unsynchronised, err)
			}
			if _, err := DecodeBatch(append(b, 0)); !errors.Is(err, ErrDamaged) {
				t.Errorf("with a byte more: %v, want ErrDamaged", err)
			}
			for n := range b {
				if _, err := DecodeBatch(b[:n]); !errors.Is(err, ErrDamaged) {
					t.Fatalf("cut to %d of %d bytes: %v, want ErrDamaged", n, len(b), err)
				}
			}
		})
	}
}

func anyUnsynchronised(rs []Reading) bool {
	for _, r := range rs {
		if r.Time.Quality == Unsynchronised {
			return true
		}
	}
	return false
}

func equal(t testing.TB, got, want []Reading) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %d readings, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("reading %d:\ngot  %+v\nwant %+v", i, got[i], want[i])
		}
	}
}

// One Encoder and one Decoder used for many batches must not carry anything
// from one to the next.
func TestReuse(t *testing.T) {
	var (
		e Encoder
		d Decoder
	)
	rng := rand.New(rand.NewPCG(1, 2))
	all := awkward(t)
	var names []string
	for name := range all {
		names = append(names, name)
	}
	var into []Reading
	for range 300 {
		rs := all[names[rng.IntN(len(names))]]
		b := e.Append(nil, rs)
		if fresh := new(Encoder).Append(nil, rs); !bytes.Equal(b, fresh) {
			t.Fatalf("a used encoder wrote %x, a fresh one %x", b, fresh)
		}
		var err error
		if into, err = d.Decode(into[:0], b); err != nil {
			t.Fatal(err)
		}
		equal(t, into, rs)
	}
}

func TestLargestBatch(t *testing.T) {
	rs := make([]Reading, MaxBatch)
	for i := range rs {
		rs[i] = Reading{Device: fmt.Sprint(i), Name: "n", Value: Int(int64(i))}
	}
	var e Encoder
	b := e.Append(nil, rs)
	got, err := DecodeBatch(b)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, got, rs)
	if e.Append(nil, rs[:1]); len(e.strings) > 3 {
		t.Error("the tables of a large batch were kept for a small one")
	}
	defer func() {
		if recover() == nil {
			t.Error("a batch too large was encoded")
		}
	}()
	AppendBatch(nil, append(rs, Reading{}))
}

// A few bytes that promise much must not make the decoder allocate much.
func TestDecodeBounds(t *testing.T) {
	for name, b := range map[string][]byte{
		"count":   {version, 0, 0xff, 0xff, 3, 0},
		"strings": {version, 0, 1, 0xff, 0xff, 0xff, 0xff, 0x0f},
		"length":  {version, 0, 1, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
		"varint":  {version, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
	} {
		allocated := testing.AllocsPerRun(10, func() {
			if _, err := DecodeBatch(b); !errors.Is(err, ErrDamaged) {
				t.Errorf("%s: %v, want ErrDamaged", name, err)
			}
		})
		if allocated > 10 {
			t.Errorf("%s: %v allocations", name, allocated)
		}
	}
	if _, err := DecodeBatch([]byte{9, 0, 0}); err == nil || !strings.Contains(err.Error(), "version 9") {
		t.Errorf("unknown version: %v", err)
	}
}

// The bytes of version 1 are on disks and links: they do not change.
func TestGolden(t *testing.T) {
	for _, name := range []string{"empty", "one", "kinds", "numbers", "names", "times", "marks", "turns"} {
		rs := awkward(t)[name]
		file := filepath.Join("testdata", name+".hex")
		got := hex.EncodeToString(AppendBatch(nil, rs))
		if *update {
			if err := os.WriteFile(file, []byte(got+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want := strings.TrimSpace(string(b))
		if got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
		old, _ := hex.DecodeString(want)
		decoded, err := DecodeBatch(old)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, decoded, rs)
	}
}

func FuzzDecode(f *testing.F) {
	for _, rs := range awkward(f) {
		f.Add(AppendBatch(nil, rs))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		rs, err := DecodeBatch(b)
		if err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Fatal(err)
			}
			return
		}
		count, unsynchronised, err := BatchInfo(b)
		if err != nil || count != len(rs) || unsynchronised != anyUnsynchronised(rs) {
			t.Fatalf("BatchInfo = %d, %v, %v; decoded %d", count, unsynchronised, err, len(rs))
		}
		again, err := DecodeBatch(AppendBatch(nil, rs))
		if err != nil {
			t.Fatal(err)
		}
		equal(t, again, rs)
	})
}

func FuzzRoundTrip(f *testing.F) {
	f.Add("a", "b", "C", "23.50", "23.5", int64(1422886740e9), int64(0), uint64(0), int64(0), uint8(0), uint8(0))
	f.Add("", "", "", "-0", "1e5", int64(-1), int64(1), uint64(1), int64(5), uint8(7), uint8(2))
	f.Fuzz(func(t *testing.T, device, name, unit, first, second string, wall, step int64, boot uint64, mono int64, flags, quality uint8) {
		value := func(s string) Value {
			if v, err := Number(s); err == nil {
				return v
			}
			return Text(s)
		}
		at := Time{Wall: wall, Quality: Quality(quality % 3), Boot: boot, Mono: mono}
		rs := []Reading{
			{Device: device, Name: name, Unit: unit, Value: value(first), Time: at, Flags: Flags(flags)},
			{Device: unit, Name: name, Unit: device, Value: Bytes([]byte(second)), Time: at},
			{Device: device, Name: name, Unit: unit, Value: value(second), Time: Time{Wall: wall + step}},
			{Device: device, Name: name, Unit: unit, Value: value(first), Time: Time{Wall: wall - step}},
		}
		got, err := DecodeBatch(AppendBatch(nil, rs))
		if err != nil {
			t.Fatal(err)
		}
		equal(t, got, rs)
	})
}

// office returns the readings of the office's samples, as rooms whose samples
// were taken at other times of its weeks: round by round, each room once.
func office(t testing.TB, rooms, rounds int) [][]Reading {
	t.Helper()
	f, err := os.Open("../testdata/office-minutes.csv.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(z).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	rows = rows[1:]
	names := []string{"temperature", "humidity", "light", "co2", "humidity_ratio", "occupancy"}
	units := []string{"Cel", "%RH", "lx", "ppm", "", ""}
	rng := rand.New(rand.NewPCG(1, 2))
	start := time.Date(2015, 2, 2, 14, 19, 0, 0, time.UTC)
	all := make([][]Reading, rounds)
	for i := range all {
		for room := range rooms {
			at := start.Add(time.Duration(i)*time.Minute + time.Duration(room)*time.Minute/time.Duration(rooms) +
				time.Duration(rng.IntN(1000))*time.Millisecond)
			for c, literal := range rows[(room*997+i)%len(rows)][1:] {
				all[i] = append(all[i], Reading{
					Device: fmt.Sprint("office-", room), Name: names[c], Unit: units[c],
					Value: num(t, literal), Time: Time{Wall: at.UnixNano()},
				})
			}
		}
	}
	return all
}

// The sizes that a metered link pays for: each case is a sequence of batches
// through one zstd stream, flushed after each.
func TestSize(t *testing.T) {
	for _, c := range []struct {
		what            string
		rooms, together int // rounds in one batch
		batches         int
		most            float64 // bytes a message of six values
	}{
		{"20 rooms, each once", 20, 1, 200, 20.5},
		{"20 rooms, 15 minutes", 20, 15, 10, 14},
		{"1 room, 300 messages", 1, 300, 10, 14},
		{"1 room, once", 1, 1, 400, 37},
	} {
		var out bytes.Buffer
		w, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		rounds := office(t, c.rooms, c.batches*c.together)
		raw := 0
		for ; len(rounds) > 0; rounds = rounds[c.together:] {
			var rs []Reading
			for _, round := range rounds[:c.together] {
				rs = append(rs, round...)
			}
			b := AppendBatch(nil, rs)
			raw += len(b)
			if _, err := w.Write(b); err != nil {
				t.Fatal(err)
			}
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		n := float64(c.rooms * c.together * c.batches)
		got := float64(out.Len()) / n
		t.Logf("%-22s %6.2f bytes a message, with zstd %6.2f", c.what, float64(raw)/n, got)
		if got > c.most {
			t.Errorf("%s: %.2f bytes a message, want at most %.1f", c.what, got, c.most)
		}
	}
}

func batches(b *testing.B) map[string][]Reading {
	minutes := func(rooms, rounds int) []Reading {
		var rs []Reading
		for _, round := range office(b, rooms, rounds) {
			rs = append(rs, round...)
		}
		return rs
	}
	return map[string][]Reading{"20x1": minutes(20, 1), "1x300": minutes(1, 300), "20x50": minutes(20, 50)}
}

func BenchmarkEncode(b *testing.B) {
	for name, rs := range batches(b) {
		b.Run(name, func(b *testing.B) {
			var e Encoder
			var dst []byte
			b.ReportAllocs()
			for b.Loop() {
				dst = e.Append(dst[:0], rs)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(rs)), "ns/reading")
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for name, rs := range batches(b) {
		b.Run(name, func(b *testing.B) {
			var d Decoder
			var into []Reading
			data := AppendBatch(nil, rs)
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if into, err = d.Decode(into[:0], data); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(rs)), "ns/reading")
		})
	}
}

func TestParseNumber(t *testing.T) {
	for literal, want := range map[string]number{
		"0": {0, 0}, "-1": {-1, 0}, "23.50": {2350, 2}, "0.007": {7, 3}, "-0.5": {-5, 1}, "0.0": {0, 1},
	} {
		got, ok := parseNumber(literal)
		if !ok || got != want {
			t.Errorf("parseNumber(%s) = %v, %v, want %v", literal, got, ok, want)
		}
		if back := string(got.append(nil)); back != literal {
			t.Errorf("%s came back as %s", literal, back)
		}
	}
	for _, literal := range []string{"-0", "-0.00", "1e5", "1E5", "18446744073709551615", "0.000000000000000000000000001"} {
		if got, ok := parseNumber(literal); ok {
			t.Errorf("parseNumber(%s) = %v, want none", literal, got)
		}
	}
}
