package flow

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// line is reading number n as the collector writes it.
func line(sequence, n uint64) string {
	data := binary.BigEndian.AppendUint64(nil, n)
	data = append(data, 0xff, 0xff, 0xff, 0xff)
	return fmt.Sprintf(`{"seq":%d,"gateway":"g","epoch":"1","lane":"live","device":"d","name":"random","bytes":%q,"time":"x"}`+"\n",
		sequence, base64.RawURLEncoding.EncodeToString(data))
}

func TestTailAccountsForEachReading(t *testing.T) {
	dir := t.TempDir()
	tail := newTail(dir, 10)
	step := func(file, text string, count, faults int) {
		t.Helper()
		path := filepath.Join(dir, "g", "live", file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		f.Close()
		before := tail.count
		got, err := tail.advance()
		if err != nil {
			t.Fatal(err)
		}
		if want := (tail.count - before) * readingBytes; got != want {
			t.Errorf("payload: got %d, want %d", got, want)
		}
		if tail.count != count || tail.faults != faults {
			t.Errorf("got %d readings and %d faults, want %d and %d", tail.count, tail.faults, count, faults)
		}
	}
	if n, err := newTail(filepath.Join(dir, "none"), 1).advance(); n != 0 || err != nil {
		t.Errorf("before there is an output: got %d, %v, want 0", n, err)
	}
	second := line(2, 1)
	step("1.jsonl", line(1, 0)+second[:20], 1, 0) // a line that is not whole yet
	step("1.jsonl", second[20:], 2, 0)
	step("2.jsonl", line(3, 2), 3, 0)            // the output went on to another file
	step("2.jsonl", line(5, 4), 4, 1)            // one is missing
	step("2.jsonl", line(6, 4), 4, 2)            // one came again
	step("2.jsonl", line(7, 10), 4, 3)           // one that was never sent
	step("2.jsonl", "{\"seq\":8}\n\n", 4, 5)     // not readings at all
	step("2.jsonl", line(1, 5)+line(2, 6), 6, 6) // the sequence began anew
}

// TestProduct runs the real programs on this machine, where nothing is slow.
func TestProduct(t *testing.T) {
	bin := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	build := exec.CommandContext(ctx, "go", "build", "-o", bin, "sluice/cmd/sluice", "sluice/cmd/sluice-collector")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	dir := t.TempDir()
	backlog, err := NewBacklog(ctx, dir, bin, 1_000_000, 1)
	if err != nil {
		t.Fatal(err)
	}
	p, err := OpenProduct(ctx, backlog, ProductOptions{Dir: filepath.Join(dir, "run")})
	if err != nil {
		t.Fatal(err)
	}
	onset := 0
	// Without a slow link everything is there before the onset, which is a fault
	// of the experiment and must be told.
	if _, err := p.Run(ctx, Interval, func() error { onset++; return nil }); err != errDry {
		t.Errorf("got %v, want %v", err, errDry)
	}
	if onset != 1 {
		t.Errorf("onset was called %d times", onset)
	}
	if got, want := p.tail.count, backlog.readings; got != want || p.tail.faults != 0 {
		t.Errorf("got %d readings and %d faults, want %d and none", got, p.tail.faults, want)
	}
	if _, err := os.Stat(filepath.Join(dir, "run")); !os.IsNotExist(err) {
		t.Errorf("the folder is still there: %v", err)
	}
}
