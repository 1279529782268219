package jsonl

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"sluice/collector"
	"sluice/collector/outputtest"
	"sluice/reading"
)

func hex(t *testing.T, s string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(s, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

var live = collector.Stream{Gateway: "gw-1", Epoch: 7, Lane: reading.Live}

func open(t *testing.T, opts Options) *Output {
	t.Helper()
	o, err := Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close() })
	return o
}

func write(t *testing.T, o *Output, s collector.Stream, after uint64, ds ...collector.Delivery) {
	t.Helper()
	if err := o.Write(t.Context(), s, after, ds); err != nil {
		t.Fatal(err)
	}
}

func wantLast(t *testing.T, o *Output, s collector.Stream, want uint64) {
	t.Helper()
	got, err := o.Last(t.Context(), s)
	if err != nil || got != want {
		t.Fatalf("last of %v: got %d, %v, want %d", s, got, err, want)
	}
}

func TestConformance(t *testing.T) {
	outputtest.Run(t, func(t *testing.T) outputtest.Place {
		dir := filepath.Join(t.TempDir(), "a", "files")
		return outputtest.Place{
			Open: func(t *testing.T) collector.Output { return open(t, Options{Dir: dir, RotateBytes: 100_000}) },
			Read: func(t *testing.T, s collector.Stream) []collector.Delivery {
				return read(t, (&Output{opts: Options{Dir: dir}}).folder(s), s)
			},
		}
	})
}

func TestOneProcessAFolder(t *testing.T) {
	dir := t.TempDir()
	o := open(t, Options{Dir: dir})
	if _, err := Open(Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "folder of its own") {
		t.Fatalf("second open: got %v, want a refusal with a remedy", err)
	}
	o.Close()
	open(t, Options{Dir: dir})
}

// F5, F6: whatever a crash leaves at the end of a file, the lines before it
// count and the next write follows them.
func TestCrashTails(t *testing.T) {
	for _, test := range []struct {
		name, tail string
		damaged    bool
	}{
		{"torn line", `{"seq":4,"gateway":"gw-`, false},
		{"torn in the number", `{"se`, false},
		{"whole line without its break", `{"seq":4}`, false},
		{"zeros", strings.Repeat("\x00", 5000), false},
		{"zeros before a line", strings.Repeat("\x00", 5000) + "\n{\"seq\":9}\n", true},
		{"a line of another kind", "hello\n", true},
		{"a number that goes back", "{\"seq\":2}\n", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			o := open(t, Options{Dir: dir})
			write(t, o, live, 0, outputtest.Readings(1, 3))
			path := o.files[live].path
			o.Close()
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteString(test.tail); err != nil {
				t.Fatal(err)
			}
			f.Close()

			o = open(t, Options{Dir: dir})
			wantLast(t, o, live, 3)
			write(t, o, live, 3, outputtest.Readings(4, 2))
			outputtest.WantRead(t, outputtest.Place{Read: func(t *testing.T, s collector.Stream) []collector.Delivery {
				return read(t, o.folder(s), s)
			}}, live, outputtest.Readings(1, 5))
			kept, err := os.ReadFile(path + ".damaged")
			if test.damaged != (err == nil) {
				t.Fatalf("kept beside the file: got %v, want it %v", err, test.damaged)
			}
			if test.damaged && string(kept) != test.tail {
				t.Fatalf("kept beside the file: got %q, want %q", kept, test.tail)
			}
		})
	}
}

// F5: a crash between the creation of a file and its first line.
func TestEmptyNewestFile(t *testing.T) {
	dir := t.TempDir()
	o := open(t, Options{Dir: dir})
	write(t, o, live, 0, outputtest.Readings(1, 3))
	if _, err := create(o.folder(live), live.Epoch, 4); err != nil {
		t.Fatal(err)
	}
	o.Close()
	o = open(t, Options{Dir: dir})
	wantLast(t, o, live, 3)
	write(t, o, live, 3, outputtest.Readings(4, 1))
	wantLast(t, o, live, 4)
}

// The window that is read at the end of a file can begin anywhere, and a line
// can be longer than it.
func TestLongLines(t *testing.T) {
	dir := t.TempDir()
	o := open(t, Options{Dir: dir})
	d := outputtest.Readings(1, 2)
	d.Readings[1].Value = reading.Text(strings.Repeat("x", 3*chunkBytes))
	write(t, o, live, 0, d)
	o.Close()
	o = open(t, Options{Dir: dir})
	wantLast(t, o, live, 2)
	write(t, o, live, 2, outputtest.Readings(3, 100_000))
	o.Close()
	o = open(t, Options{Dir: dir})
	wantLast(t, o, live, 100_002)
}

func TestRotation(t *testing.T) {
	dir := t.TempDir()
	o := open(t, Options{Dir: dir, RotateBytes: 1000, Keep: 3})
	old := live
	old.Epoch = 99
	write(t, o, old, 0, outputtest.Readings(1, 1))
	for after := uint64(0); after < 100; after += 10 {
		write(t, o, live, after, outputtest.Readings(after+1, 10))
	}
	entries, err := os.ReadDir(o.folder(live))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	want := []string{fileName(7, 71), fileName(7, 81), fileName(7, 91)}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Fatalf("files: got %v, want %v", got, want)
	}
	o.Close()
	o = open(t, Options{Dir: dir, RotateBytes: 1000, Keep: 3})
	wantLast(t, o, live, 100)
}

func BenchmarkWrite(b *testing.B) {
	o, err := Open(Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer o.Close()
	const n = 4096
	after := uint64(0)
	for b.Loop() {
		if err := o.Write(b.Context(), live, after, []collector.Delivery{outputtest.Readings(after+1, n)}); err != nil {
			b.Fatal(err)
		}
		after += n
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "readings/s")
}

func FuzzLastGoodLine(f *testing.F) {
	f.Add([]byte("{\"seq\":1}\n{\"seq\":2,\"last\":5}\n"))
	f.Add([]byte("{\"seq\":1}\n{\"seq\":"))
	f.Add([]byte("\n\n{\"seq\":0}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		end, last, err := lastGoodLine(strings.NewReader(string(data)), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		if end < 0 || end > int64(len(data)) {
			t.Fatalf("end: got %d, want within 0 to %d", end, len(data))
		}
		if (end == 0) != (last == 0) {
			t.Fatalf("got end %d and last %d: want both or none", end, last)
		}
		if end > 0 && data[end-1] != '\n' {
			t.Fatalf("end %d is not after a line", end)
		}
	})
}
