package main

import (
	"runtime/debug"
	"testing"
	"time"
)

// However the program is built, its clock has a floor (F15).
func TestClockFloor(t *testing.T) {
	vcs := []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.time", Value: "2026-06-01T12:00:00Z"}}
	for _, test := range []struct {
		name, linked string
		settings     []debug.BuildSetting
		want         string
	}{
		{"nothing known", "", nil, written},
		{"linked", "2026-05-01T12:00:00+02:00", nil, "2026-05-01T10:00:00Z"},
		{"of the commit", "", vcs, "2026-06-01T12:00:00Z"},
		{"both", "2026-05-01T12:00:00Z", vcs, "2026-06-01T12:00:00Z"},
		{"nonsense", "yesterday", nil, written},
		{"a clock that was wrong", "1970-01-01T00:00:00Z", nil, written},
	} {
		if got := clockFloor(test.linked, test.settings).UTC().Format(time.RFC3339); got != test.want {
			t.Errorf("%s: got %s, want %s", test.name, got, test.want)
		}
	}
}
