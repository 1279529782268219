package admin

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestWritePaths(t *testing.T) {
	s := Status{Time: noon(), Started: noon().Add(-time.Hour), Uplink: Uplink{Configured: true}}
	check := func(name string, write func(*bytes.Buffer) error, want ...string) {
		t.Helper()
		var got bytes.Buffer
		if err := write(&got); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(got.String(), "\n"), "\n")
		for i, line := range lines {
			lines[i] = strings.Join(strings.Fields(line), " ")
		}
		if strings.Join(lines, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s: got\n%s\nwant\n%s", name, strings.Join(lines, "\n"), strings.Join(want, "\n"))
		}
	}
	paths := func(b *bytes.Buffer) error { return WritePaths(b, &s) }
	switches := func(b *bytes.Buffer) error { return WriteSwitches(b, &s) }
	check("no paths", paths, "no paths are configured: the gateway goes wherever the system's route leads; add [[uplink.path]] to choose")
	s.Uplink.Choice = "the paths cannot be used: not permitted"
	check("paths refused", paths, "the paths cannot be used: not permitted")
	s.Uplink.Paths = []Path{
		{Name: "wlan0", Up: true, Usable: true, Primary: true, LossLast: 2.5, LossMax: 10, Score: 4.375, RTTSeconds: 0.0123, SentBytes: 1500, Since: noon().Add(-90 * time.Second), Reason: "lowest score"},
		{Name: "wwan0", Up: true, Reason: "no probe was answered for 5 s", Standing: "recovering 3/5"},
		{Name: "wwan\x1b1", Reason: "no carrier"},
	}
	check("paths", paths,
		"PATH STATE LOSS MOST SCORE ROUND TRIP SENT RECEIVED SINCE WHY",
		"wlan0 primary 2.5 % 10.0 % 4.4 12ms 1.5 KB 0 B 1m30s lowest score",
		"wwan0 recovering 3/5 0.0 % 0.0 % 0.0 0us 0 B 0 B no probe was answered for 5 s",
		"wwan\ufffd1 down 0.0 % 0.0 % 0.0 0us 0 B 0 B no carrier")
	check("no switches", switches, "no switch since "+s.Started.Format(time.DateTime))
	s.Uplink.Switches = []Switch{{At: noon(), From: "sctp wlan0", To: "tcp wwan0", FromScore: 12, ToScore: 0.5, Reason: "12 % loss"}}
	check("switches", switches,
		"WHEN FROM SCORE TO SCORE WHY",
		noon().Local().Format(time.DateTime)+" sctp wlan0 12.0 tcp wwan0 0.5 12 % loss")
}
