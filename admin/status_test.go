package admin

import (
	"time"
)

// noon is when the statuses of these tests are taken.
func noon() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// busy is the status of a gateway that has something to show everywhere.
func busy() Status {
	s := Status{
		StatusVersion: StatusVersion, Gateway: "gw-1", Software: "1.2.3", Time: noon(), Started: noon().Add(-26 * time.Hour), UptimeSeconds: 93600,
		Configuration: Configuration{File: "/etc/sluice.toml", Loaded: noon().Add(-time.Hour), Refused: "line 3: store.qouta: unknown key"},
		Clock:         Clock{Quality: "synchronised"},
		Ingest: Ingest{Messages: 120000, Readings: 700000, Raw: 9, Nulls: 12, Invalid: 3, Refused: 4, Dropped: 2,
			RawByTopic:  map[string]uint64{"a": 1, "b": 3, "c": 1, "d": 1, "e": 1, "f\x1b[2J": 1, "g": 1},
			RawByReason: map[string]uint64{"json": 5, "utf8": 4},
			Sources: []Source{
				{Name: "broker", Up: true, Clients: 8, Messages: 119000, Refused: 4, Dropped: 2},
				{Name: "mqtt house", Reason: "connection refused", Since: noon().Add(-90 * time.Second), Messages: 1000},
			}},
		Devices: Devices{Online: 18, Offline: 2, Missing: []string{"kitchen/lamp", "barn/door"},
			Bridges: []Bridge{{Base: "zigbee2mqtt", Online: true, Version: "2.1.0", Devices: 20, Errors: 1, LastError: "no route"}}},
		Store: Store{
			Lanes: []Lane{{Name: "alarm"}, {Name: "live", Readings: 120, Bytes: 2400, OldestSeconds: 0.4},
				{Name: "backfill", Readings: 250000, Bytes: 5000000, OldestSeconds: 7200}},
			Appended: 699000, Duplicates: 1000, Removed: map[string]uint64{"quota": 44, "damaged": 0},
			FileBytes: 64e6, UsedBytes: 60e6, QuotaBytes: 256e6, Commits: 5000, CommitSeconds: 0.0063, CommitLongestSeconds: 0.51, WrittenBytes: 90e6,
		},
		Uplink: Uplink{Configured: true, Up: true, State: "delivering", Since: noon().Add(-5 * time.Minute), Path: "wlan0", Carrier: "tcp",
			Remote: "192.0.2.1:7600", RTTSeconds: 0.0421, LastAck: noon().Add(-20 * time.Millisecond), Delivered: 448880, Resent: 12, GivenUp: 1, Frames: 900, Retries: 3,
			SentBytes: 7123456, RecvBytes: 20000},
	}
	s.Health = Judge(&s, 200*time.Millisecond)
	return s
}
