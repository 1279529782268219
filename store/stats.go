package store

import (
	"time"

	"sluice/reading"
)

// Stats is what the store has to say about itself.
type Stats struct {
	Epoch uint64
	Lanes [reading.Lanes]LaneStats

	// Since Open.
	Appended   uint64 // readings
	Duplicates uint64 // batches that were repetitions
	Refused    uint64 // batches, with ErrFull
	Waiting    int    // batches, for the next commit

	// Damaged counts readings that were set aside because their value failed its
	// checksum, ever.
	Damaged uint64

	Quota     int64 // bytes
	UsedBytes int64 // of pages in use; the quota is about these
	FileBytes int64 // of pages in use and free

	Commits    uint64
	CommitLast time.Duration
	CommitMax  time.Duration
	Written    int64 // bytes, to the database file

	// Paused says why nothing is stored at present and what to do; empty if all
	// is well.
	Paused      string
	PausedSince time.Time

	// SetAside is the newest damaged file beside the store, empty if there is
	// none. Since Open: Cause is why it was set aside, Salvaged how many readings
	// that were not yet delivered came out of it.
	SetAside string
	Cause    string
	Salvaged uint64
}

// LaneStats is what a lane holds.
type LaneStats struct {
	Readings uint64 // stored and not acknowledged
	Bytes    uint64 // of stored values
	Oldest   int64  // when the oldest was stored, nanoseconds since 1970; 0 if there is none
	Next     uint64 // the next sequence number to be given
	Acked    uint64 // the far end has everything up to here
	Removed  uint64 // readings that the policy removed, ever
}

// Stats returns the state after the last commit, with the acknowledgements that
// came since.
func (s *Store) Stats() Stats {
	s.statsMu.Lock()
	st := s.stats
	s.statsMu.Unlock()
	for l := range st.Lanes {
		lane := &st.Lanes[l]
		lane.Acked = max(lane.Acked, s.acked[l].Load())
		// Deletion is lazy, but what is acknowledged is no backlog.
		if lane.Acked+1 >= lane.Next {
			lane.Readings, lane.Bytes, lane.Oldest = 0, 0, 0
		} else {
			lane.Readings = min(lane.Readings, lane.Next-1-lane.Acked)
		}
	}
	st.Waiting = s.group.waiting().batches
	return st
}

// publish makes the committer's numbers visible.
func (s *Store) publish() {
	c := &s.c
	db := s.db.Load()
	file, free, err := db.sizes()
	written := c.written + db.written(c.dbCommits)
	s.statsMu.Lock()
	defer s.statsMu.Unlock()
	st := &s.stats
	st.Epoch = c.state.epoch
	for l, lane := range c.state.lanes {
		st.Lanes[l] = LaneStats{
			Readings: lane.readings, Bytes: lane.bytes, Oldest: c.oldest[l],
			Next: lane.next, Acked: lane.acked, Removed: lane.removed,
		}
	}
	st.Appended, st.Duplicates, st.Refused, st.Damaged = c.appended, c.duplicates, c.refused, c.state.damaged
	if err == nil {
		st.FileBytes, st.UsedBytes = file, file-free
	}
	st.Commits, st.CommitLast, st.CommitMax, st.Written = c.commits, c.latencyLast, c.latencyMax, written
	st.Paused, st.PausedSince = c.paused, c.pausedSince
	st.SetAside, st.Cause, st.Salvaged = c.setAside, c.cause, c.salvaged
}
