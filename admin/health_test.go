package admin

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	tests := []struct {
		name    string
		change  func(*Status)
		reasons []string
	}{
		{"moving", func(*Status) {}, nil},
		{"paused (F9)", func(s *Status) { s.Store.Paused = "disk full: free some space" },
			[]string{"nothing is taken in: disk full: free some space"}},
		{"commit stuck", func(s *Status) { s.Store.CommitWaitingSeconds = 20 },
			[]string{"a commit has not ended for 20s: check the disk"}},
		{"up, waiting, no acknowledgement", func(s *Status) { s.Uplink.LastAck = noon().Add(-2 * time.Minute) },
			[]string{"nothing was acknowledged for 2m00s although the link is up and 250120 readings wait"}},
		{"up, never acknowledged", func(s *Status) { s.Uplink.LastAck = time.Time{} },
			[]string{"nothing was acknowledged for 5m00s although the link is up and 250120 readings wait"}},
		{"up for a moment", func(s *Status) { s.Uplink.Since, s.Uplink.LastAck = noon(), noon().Add(-time.Hour) }, nil},
		{"up, nothing older than a moment", func(s *Status) {
			s.Uplink.LastAck = noon().Add(-time.Hour)
			s.Store.Lanes = []Lane{{Readings: 1, OldestSeconds: 2}}
		}, nil},
		{"up, nothing waits", func(s *Status) { s.Uplink.LastAck, s.Store.Lanes = noon().Add(-time.Hour), nil }, nil},
		{"down for long: readings wait where they belong", func(s *Status) { s.Uplink.Up, s.Uplink.LastAck = false, noon().Add(-time.Hour) }, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := busy()
			test.change(&s)
			h := Judge(&s, time.Second)
			if !slices.Equal(h.Reasons, test.reasons) || h.OK != (len(test.reasons) == 0) {
				t.Errorf("got %v %q, want %q", h.OK, h.Reasons, test.reasons)
			}
		})
	}
}

func TestJudgeWarns(t *testing.T) {
	s := Status{Time: noon(), Started: noon().Add(-time.Minute), Clock: Clock{Quality: "unsynchronised"},
		Ingest:        Ingest{Sources: []Source{{Name: "mqtt house", Reason: "connection refused"}}},
		Devices:       Devices{Bridges: []Bridge{{Base: "zigbee2mqtt"}}},
		Store:         Store{SetAside: "/var/lib/sluice/store.damaged", UsedBytes: 95e6, QuotaBytes: 100e6},
		Configuration: Configuration{Refused: "line 3: store.qouta: unknown key"},
		Uplink: Uplink{Configured: true, Since: noon().Add(-time.Hour), Reason: "no route to host",
			Paths: []Path{{Name: "wlan0", Reason: "no carrier", Since: noon().Add(-time.Minute)}, {Name: "wwan0", Since: noon()}}},
	}
	got := strings.Join(Judge(&s, 0).Warnings, "\n")
	want := `no collector was reached yet: no route to host
path wlan0 is down: no carrier
mqtt house: connection refused
Zigbee2MQTT at "zigbee2mqtt" is offline
the configuration file was changed but not taken: line 3: store.qouta: unknown key
the store was damaged: what could not be read is in /var/lib/sluice/store.damaged
the store is nearly full: 95.0 MB of 100.0 MB
the clock is not set: readings are sent with their time since boot`
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// TestJudgeLink is told within a minute of a link that is down, whether it was
// ever up or not, and however often it was tried.
func TestJudgeLink(t *testing.T) {
	for _, test := range []struct {
		started, acked time.Duration // before noon; 0 is never
		want           string
	}{
		{20 * time.Second, 0, ""},
		{40 * time.Second, 0, "no collector was reached yet: no route to host"},
		{time.Hour, 20 * time.Second, ""},
		{time.Hour, 90 * time.Second, "no collector, and nothing acknowledged for 1m30s: no route to host"},
	} {
		s := Status{Time: noon(), Started: noon().Add(-test.started), Uplink: Uplink{Configured: true, Since: noon(), Reason: "no route to host"}}
		if test.acked > 0 {
			s.Uplink.LastAck = noon().Add(-test.acked)
		}
		if got := strings.Join(Judge(&s, 0).Warnings, "\n"); got != test.want {
			t.Errorf("%+v: got %q, want %q", test, got, test.want)
		}
	}
}
