package ingest

import (
	"maps"
	"sync"
	"sync/atomic"
)

// Stats counts since the decoder was made.
type Stats struct {
	Messages uint64 // all that came in
	Readings uint64 // that came out of them
	Nulls    uint64 // readings whose device said that it has no value
	Invalid  uint64 // readings that are known "no measurement" numbers
	Alarms   uint64 // messages sent to the alarm lane
	State    uint64 // messages that said something of a device or bridge
	Refused  uint64 // sink nodes' batches that cannot be used
	BadTimes uint64 // devices' times that were not used
	Cut      uint64 // unreadable payloads too long to be kept whole
	// ByFormat counts messages by the format of their rule.
	ByFormat map[Format]uint64
	// RawByReason and RawByTopic count payloads that could not be read; beyond
	// 256 topics the rest is under "other".
	RawByReason map[string]uint64
	RawByTopic  map[string]uint64
}

// maxRawTopics bounds Stats.RawByTopic.
const maxRawTopics = 256

// counters collects Stats.
type counters struct {
	messages, readings, nulls, invalid, alarms atomic.Uint64
	state, refused, badTimes, cut              atomic.Uint64
	byFormat                                   [len(formats)]atomic.Uint64

	mu          sync.Mutex // guards what follows
	rawByReason map[string]uint64
	rawByTopic  map[string]uint64
}

func (c *counters) raw(topic, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rawByReason[reason]++
	if _, known := c.rawByTopic[topic]; !known && (len(c.rawByTopic) >= maxRawTopics || len(topic) > maxCached) {
		topic = "other"
	}
	c.rawByTopic[topic]++
}

func (c *counters) snapshot() Stats {
	s := Stats{
		Messages: c.messages.Load(),
		Readings: c.readings.Load(),
		Nulls:    c.nulls.Load(),
		Invalid:  c.invalid.Load(),
		Alarms:   c.alarms.Load(),
		State:    c.state.Load(),
		Refused:  c.refused.Load(),
		BadTimes: c.badTimes.Load(),
		Cut:      c.cut.Load(),
		ByFormat: make(map[Format]uint64, len(formats)),
	}
	for i, f := range formats {
		s.ByFormat[f] = c.byFormat[i].Load()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.RawByReason = maps.Clone(c.rawByReason)
	s.RawByTopic = maps.Clone(c.rawByTopic)
	return s
}
