package jsonl

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"sluice/collector"
	"sluice/collector/outputtest"
)

// F9: the disk fills up, within a write or when a file begins. What was
// acknowledged stays, and with room again the same output goes on.
func TestDiskFull(t *testing.T) {
	for _, rotate := range []int64{0, 1} {
		dir := outputtest.SmallDisk(t, 8<<20)
		o := open(t, Options{Dir: filepath.Join(dir, "files"), RotateBytes: rotate})
		hog := filepath.Join(dir, "hog")
		if err := os.WriteFile(hog, make([]byte, 3<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		last := uint64(0)
		next := func() error {
			d := outputtest.Readings(last+1, 3000)
			err := o.Write(t.Context(), live, last, []collector.Delivery{d})
			if err == nil {
				last = d.Last()
			}
			return err
		}
		var err error
		for err == nil {
			err = next()
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("disk full: got %v, want %v", err, syscall.ENOSPC)
		}
		wantLast(t, o, live, last)
		if err := next(); err == nil {
			t.Error("write on a full disk: got no error")
		}
		if err := os.Remove(hog); err != nil {
			t.Fatal(err)
		}
		if err := next(); err != nil {
			t.Fatalf("with room again: %v", err)
		}
		want := outputtest.Readings(1, int(last))
		outputtest.WantRead(t, outputtest.Place{Read: func(t *testing.T, s collector.Stream) []collector.Delivery {
			return read(t, o.folder(s), s)
		}}, live, want)
		o.Close()
	}
}
