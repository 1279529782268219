package jetstream

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/collector"
	"sluice/collector/outputtest"
)

// F9: the disk fills up. What is written is refused with a remedy, and when
// there is room again the same output goes on by itself.
func TestDiskFull(t *testing.T) {
	for _, test := range []struct {
		name, want string
		keepFree   uint64
	}{
		{"noticed before", "disk full: ", 4 << 20},
		// Something else took what was left, or a quota that the disk does not
		// tell of: the server's own write fails.
		{"noticed in a write", "no space left on device", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := outputtest.SmallDisk(t, 24<<20)
			o := open(t, filepath.Join(dir, "jetstream"))
			o.server.keepFree = test.keepFree
			ctx := outputtest.Context(t)
			last := uint64(0)
			write := func() error {
				d := outputtest.Readings(last+1, 4000)
				err := o.Write(ctx, live, last, []collector.Delivery{d})
				if err == nil {
					last = d.Last()
				}
				return err
			}
			if err := write(); err != nil {
				t.Fatal(err)
			}
			hog := filepath.Join(dir, "hog")
			if err := os.WriteFile(hog, make([]byte, 21<<20), 0o600); err != nil {
				t.Fatal(err)
			}
			var err error
			for err == nil {
				err = write()
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("disk full: got %q, want %q in it", err, test.want)
			}
			// A server that was started anew is reached after a moment.
			held, err := o.Last(ctx, live)
			for err != nil && ctx.Err() == nil {
				held, err = o.Last(ctx, live)
			}
			if err != nil || held != last {
				t.Errorf("last on a full disk: got %d, %v, want %d", held, err, last)
			}
			if err := os.Remove(hog); err != nil {
				t.Fatal(err)
			}
			for write() != nil {
				if ctx.Err() != nil {
					t.Fatal("with room again: no write succeeds")
				}
			}
			want := last
			o.Close()
			o = open(t, filepath.Join(dir, "jetstream"))
			if held, err := o.Last(ctx, live); err != nil || held != want {
				t.Fatalf("last after a restart: got %d, %v, want %d", held, err, want)
			}
			if ds := read(t, Cluster{URLs: []string{"nats://" + o.Address()}}, live); !once(ds, last) {
				t.Errorf("the stream does not hold readings 1 to %d once", last)
			}
		})
	}
}
