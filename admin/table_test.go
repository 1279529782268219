package admin

import (
	"bytes"
	"flag"
	"os"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestWriteTable(t *testing.T) {
	fresh := Status{Gateway: "gw-2", Software: "dev", Time: noon(), Store: Store{QuotaBytes: 256e6}}
	fresh.Health = Judge(&fresh, 0)
	stuck := busy()
	stuck.Store.Paused = "disk full: free some space"
	stuck.Store.SetAside, stuck.Store.Salvaged = "/var/lib/sluice/store.db.damaged", 3
	stuck.Ingest.Messages, stuck.Ingest.Raw, stuck.Ingest.RawByReason = 1, 1, map[string]uint64{"json": 1}
	stuck.Health = Judge(&stuck, 0)
	for name, s := range map[string]Status{"busy": busy(), "fresh": fresh, "stuck": stuck} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			if err := WriteTable(&got, &s); err != nil {
				t.Fatal(err)
			}
			golden := "testdata/" + name + ".txt"
			if *update {
				if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Bytes(), want) {
				t.Errorf("got:\n%s\nwant:\n%s", got.Bytes(), want)
			}
		})
	}
}

func TestShort(t *testing.T) {
	for _, test := range []struct {
		d    time.Duration
		want string
	}{
		{-time.Second, "0us"}, {90 * time.Microsecond, "90us"}, {42 * time.Millisecond, "42ms"}, {1500 * time.Millisecond, "1.5s"},
		{59 * time.Second, "59s"}, {61 * time.Second, "1m01s"}, {26 * time.Hour, "26h00m"}, {75 * time.Hour, "3d03h"},
	} {
		if got := short(test.d); got != test.want {
			t.Errorf("short(%v): got %q, want %q", test.d, got, test.want)
		}
	}
}
