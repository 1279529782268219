// Package admin shows what a gateway does: one status document, served over a
// local socket, the same as metrics for Prometheus, a judgement whether anything
// is wrong, and the table that people read.
//
// It knows no other part of the gateway: whoever wires the parts fills in the
// document.
package admin

import "time"

// StatusVersion is the version of the status document. Fields may be added
// within a version; none changes its name or meaning.
const StatusVersion = 1

// Status is everything about a gateway at one moment. Counters count since
// Started, unless they say otherwise. Durations are in seconds.
type Status struct {
	StatusVersion int           `json:"status_version"`
	Gateway       string        `json:"gateway"`
	Software      string        `json:"software"`
	Time          time.Time     `json:"time"`
	Started       time.Time     `json:"started"`
	UptimeSeconds float64       `json:"uptime_s"`
	Health        Health        `json:"health"`
	Configuration Configuration `json:"configuration"`
	Clock         Clock         `json:"clock"`
	Ingest        Ingest        `json:"ingest"`
	Devices       Devices       `json:"devices"`
	Store         Store         `json:"store"`
	Uplink        Uplink        `json:"uplink"`
}

// Health is the judgement. Reasons are what keeps readings from moving although
// they should; Warnings are what somebody should look at some time.
type Health struct {
	OK       bool     `json:"ok"`
	Reasons  []string `json:"reasons"`
	Warnings []string `json:"warnings"`
}

// Configuration says which file holds.
type Configuration struct {
	File   string    `json:"file"`
	Loaded time.Time `json:"loaded"`
	// Refused is why a newer version of the file was not taken; empty if what
	// runs is what the file says.
	Refused string `json:"refused,omitempty"`
}

// Clock says how far the gateway trusts its clock.
type Clock struct {
	Quality string `json:"quality"` // "synchronised" or "unsynchronised"
}

// Ingest is what came in.
type Ingest struct {
	Messages    uint64            `json:"messages"`
	Readings    uint64            `json:"readings"`
	Raw         uint64            `json:"raw"`   // payloads that could not be read and are kept as they came
	Nulls       uint64            `json:"nulls"` // readings that say "no value"
	Invalid     uint64            `json:"invalid"`
	Refused     uint64            `json:"refused"` // not taken, and the sender knows
	Dropped     uint64            `json:"dropped"` // not taken, and the sender cannot know (QoS 0)
	RawByTopic  map[string]uint64 `json:"raw_by_topic,omitempty"`
	RawByReason map[string]uint64 `json:"raw_by_reason,omitempty"`
	Sources     []Source          `json:"sources"`
}

// Source is a place where readings come from.
type Source struct {
	Name string `json:"name"` // "broker", "mqtt house", "push"
	// Up says whether it works; Reason says in words why or why not.
	Up       bool      `json:"up"`
	Reason   string    `json:"reason,omitempty"`
	Since    time.Time `json:"since,omitzero"`
	Clients  int       `json:"clients,omitempty"`
	Messages uint64    `json:"messages"`
	Refused  uint64    `json:"refused"`
	Dropped  uint64    `json:"dropped"`
	// RefusedByReason splits Refused where the source knows reasons.
	RefusedByReason map[string]uint64 `json:"refused_by_reason,omitempty"`
	// Undelivered and Unretained are what the broker's limits kept from local
	// subscribers; the readings themselves are stored.
	Undelivered uint64 `json:"undelivered,omitempty"`
	Unretained  uint64 `json:"unretained,omitempty"`
}

// Devices is what devices and bridges last said of themselves.
type Devices struct {
	Online  int      `json:"online"`
	Offline int      `json:"offline"`
	Bridges []Bridge `json:"bridges,omitempty"`
	// Missing are names of devices that are offline, a few of them if many.
	Missing []string `json:"missing,omitempty"`
}

// Bridge is one Zigbee2MQTT instance.
type Bridge struct {
	Base      string `json:"base"`
	Online    bool   `json:"online"`
	Version   string `json:"version,omitempty"`
	Devices   int    `json:"devices"`
	Errors    uint64 `json:"errors"`
	LastError string `json:"last_error,omitempty"`
}

// Store is the queue on disk.
type Store struct {
	Lanes      []Lane            `json:"lanes"` // most urgent first
	Appended   uint64            `json:"appended"`
	Duplicates uint64            `json:"duplicates"`
	Removed    map[string]uint64 `json:"removed"` // by reason, since the store was created
	FileBytes  int64             `json:"file_bytes"`
	UsedBytes  int64             `json:"used_bytes"`
	QuotaBytes int64             `json:"quota_bytes"`

	Commits              uint64  `json:"commits"`
	CommitSeconds        float64 `json:"commit_s"`         // the last one
	CommitLongestSeconds float64 `json:"commit_longest_s"` // the longest one
	CommitWaitingSeconds float64 `json:"commit_waiting_s"` // how long the present one has been under way
	WrittenBytes         uint64  `json:"written_bytes"`    // to disk

	Paused   string `json:"paused,omitempty"`    // why nothing is taken at present
	SetAside string `json:"set_aside,omitempty"` // a damaged file that was replaced
	Salvaged uint64 `json:"salvaged,omitempty"`  // readings saved out of it
	Damaged  uint64 `json:"damaged,omitempty"`   // readings that were set aside
}

// Lane is one queue of the store.
type Lane struct {
	Name          string  `json:"name"`
	Readings      uint64  `json:"readings"`
	Bytes         int64   `json:"bytes"`
	OldestSeconds float64 `json:"oldest_s"` // how long the first in it has waited
}

// Backlog is the readings of all lanes that wait for the collector.
func (s *Store) Backlog() (readings uint64, oldest float64) {
	for _, l := range s.Lanes {
		readings += l.Readings
		oldest = max(oldest, l.OldestSeconds)
	}
	return readings, oldest
}

// Uplink is the way to the collector.
type Uplink struct {
	// Configured is false on a gateway that has no collector.
	Configured bool      `json:"configured"`
	Up         bool      `json:"up"`
	State      string    `json:"state"`
	Reason     string    `json:"reason"`
	Since      time.Time `json:"since,omitzero"`
	Path       string    `json:"path,omitempty"`
	Carrier    string    `json:"carrier,omitempty"`
	Remote     string    `json:"remote,omitempty"`
	RTTSeconds float64   `json:"rtt_s"`
	LastAck    time.Time `json:"last_ack,omitzero"`
	Delivered  uint64    `json:"delivered"` // readings
	Resent     uint64    `json:"resent"`    // of them sent again
	GivenUp    uint64    `json:"given_up"`  // readings larger than any frame
	Frames     uint64    `json:"frames"`
	Retries    uint64    `json:"retries"`
	SentBytes  uint64    `json:"sent_bytes"`
	RecvBytes  uint64    `json:"received_bytes"`

	// What follows is there on a gateway that knows its paths.

	Underlay string    `json:"underlay,omitempty"` // what carries the carrier: "tunnel", "bare"
	Choice   string    `json:"choice,omitempty"`   // why this carrier and underlay
	NextTry  time.Time `json:"next_try,omitzero"`  // of a better one
	Paths    []Path    `json:"paths,omitempty"`    // in order of preference
	Switches []Switch  `json:"switches,omitempty"` // oldest first
}

// Path is one way to the collector.
type Path struct {
	Name    string    `json:"name"` // the interface's
	Up      bool      `json:"up"`   // it has a carrier, an address and a route
	Usable  bool      `json:"usable"`
	Primary bool      `json:"primary"` // readings go by it
	Metered bool      `json:"metered"`
	Reason  string    `json:"reason"`
	Since   time.Time `json:"since,omitzero"` // of usable or not
	// LossLast and LossMax are percent, in the last slot and the most in the
	// window; Score is what paths are compared by, lower is better.
	LossLast   float64 `json:"loss_last"`
	LossMax    float64 `json:"loss_max"`
	Score      float64 `json:"score"`
	RTTSeconds float64 `json:"rtt_s"`
	SentBytes  uint64  `json:"sent_bytes"`
	RecvBytes  uint64  `json:"received_bytes"`
	// Standing is how far a path that failed has proved itself since, such as
	// "recovering 5/5, 40 s more": five good probes of five, and time to go. Empty
	// if it has, or never failed.
	Standing string `json:"standing,omitempty"`
}

// Switch is one change of path or protocol.
type Switch struct {
	At        time.Time `json:"at"`
	From      string    `json:"from"` // "sctp wlan0"
	To        string    `json:"to"`
	FromScore float64   `json:"from_score"`
	ToScore   float64   `json:"to_score"`
	Reason    string    `json:"reason"`
}
