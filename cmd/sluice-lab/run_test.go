package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/admin"
)

func TestRunExplainsItself(t *testing.T) {
	tests := []struct {
		args   []string
		code   int
		stdout string
		stderr string
	}{
		{nil, 2, "", "usage: sluice-lab"},
		{[]string{"help"}, 0, "usage: sluice-lab", ""},
		{[]string{"dance"}, 2, "", `unknown command "dance"`},
		{[]string{"bench", "-h"}, 0, "", "-quick"},
		{[]string{"bench", "-only", "luck"}, 2, "", `no part is named "luck"`},
		{[]string{"demo", "now"}, 2, "", `unexpected argument "now"`},
		{[]string{"demo", "-data", "/nowhere"}, 1, "", "read recording: open /nowhere"},
	}
	for _, test := range tests {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if got := run(t.Context(), test.args, &stdout, &stderr); got != test.code {
				t.Errorf("exit code: got %d, want %d", got, test.code)
			}
			for _, c := range []struct{ name, got, want string }{
				{"stdout", stdout.String(), test.stdout},
				{"stderr", stderr.String(), test.stderr},
			} {
				if !strings.Contains(c.got, c.want) || c.want == "" && c.got != "" {
					t.Errorf("%s: got %q, want %q in it", c.name, c.got, c.want)
				}
			}
		})
	}
}

func TestFiguresTableAndRatios(t *testing.T) {
	var f figures
	f.add("end_to_end", "end to end", 33000, "messages/s")
	f.add("mosquitto_end_to_end", "mosquitto", 30000, "messages/s")
	f.compare()
	ratio, ok := f.find("throughput_ratio")
	if !ok || ratio != 1.1 {
		t.Errorf("ratio: got %v, %v, want 1.1", ratio, ok)
	}
	if got := f.table(); !strings.Contains(got, "| end to end ") || !strings.Contains(got, "| 33000 |") {
		t.Errorf("table:\n%s", got)
	}
	lines := strings.Split(strings.TrimSpace(f.lines()), "\n")
	if want := `{"name":"end_to_end","what":"end to end","value":33000,"unit":"messages/s"}`; lines[0] != want {
		t.Errorf("first line: got %s, want %s", lines[0], want)
	}
}

func TestPositionSurvives(t *testing.T) {
	p := position(filepath.Join(t.TempDir(), "position"))
	for _, want := range []uint64{0, 1, 123456} {
		if want > 0 {
			if err := p.write(want); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := p.read(); err != nil || got != want {
			t.Errorf("got %d, %v, want %d", got, err, want)
		}
	}
}

func TestPatienceEndsWhenNothingComes(t *testing.T) {
	start := time.Unix(0, 0)
	p := patience{limit: 10 * time.Second}
	steps := []struct {
		after time.Duration
		count uint64
		want  bool
	}{
		{0, 0, true}, {9 * time.Second, 0, true}, {9500 * time.Millisecond, 1, true},
		{19 * time.Second, 1, true}, {20 * time.Second, 1, false},
	}
	for _, s := range steps {
		if got := p.more(start.Add(s.after), s.count); got != s.want {
			t.Errorf("after %v with count %d: got %v, want %v", s.after, s.count, got, s.want)
		}
	}
}

func TestViewShowsWhatAPersonAsks(t *testing.T) {
	status := admin.Status{Time: time.Unix(100, 0)}
	status.Ingest.Readings = 1234
	status.Store.Lanes = []admin.Lane{{Name: "live", Readings: 56, OldestSeconds: 7.8}}
	status.Store.Duplicates = 9
	status.Uplink = admin.Uplink{Up: true, Carrier: "tcp", Remote: "127.0.0.1:7600", Delivered: 1178, RTTSeconds: 0.0012}
	var out bytes.Buffer
	v := view{out: &out}
	v.show(status, 0)
	want := "in 1234 (0/s)  backlog 56, oldest 7.8 s  delivered 1178  duplicates 9  tcp to 127.0.0.1:7600, round trip 1.2 ms\n"
	if got := out.String(); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
