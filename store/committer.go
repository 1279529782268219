package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	"go.etcd.io/bbolt"

	"sluice/reading"
)

// retryPause is how long the committer waits between attempts while the disk
// refuses.
const retryPause = time.Second

// committer is what belongs to the goroutine that writes.
type committer struct {
	state    state
	oldest   [reading.Lanes]int64
	receipts *receipts
	planner  planner
	entries  []entry   // the last group's
	last     time.Time // when the last commit started

	// attempt is what the last transaction that failed would have made,
	// attemptPlan what it was to store, and attemptID its bbolt number: see update.
	attempt     change
	attemptPlan *plan
	attemptID   int

	commits     uint64
	dbCommits   uint64 // on the present file
	written     int64  // to files before it
	latencyLast time.Duration
	latencyMax  time.Duration
	appended    uint64
	duplicates  uint64
	refused     uint64
	salvaged    uint64
	setAside    string
	cause       string
	paused      string
	pausedSince time.Time
}

// repairRequest asks the committer to rebuild the file that db has open; reply
// is closed when that has been tried.
type repairRequest struct {
	db    *database
	cause error
	reply chan struct{}
}

// run is the committer goroutine.
func (s *Store) run() {
	defer close(s.stopped)
	defer s.refuse()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		due, waits := s.pace.next(s.group.waiting(), s.c.last)
		wait := time.Until(due)
		if waits && wait <= 0 {
			if !s.commit() {
				return
			}
			continue
		}
		if !waits {
			wait = time.Hour
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-s.group.wake:
		case r := <-s.repairs:
			if s.repair(r.db, r.cause) {
				s.resume()
			}
			close(r.reply)
		case <-s.stop:
			s.commit()
			return
		}
	}
}

// commit writes the waiting group, trying again until the disk takes it, and
// tells the group's senders. It returns false when the store closes.
func (s *Store) commit() bool {
	c := &s.c
	c.last = time.Now()
	c.entries = s.group.take(c.entries)
	for l := range c.state.lanes {
		// The far end may have more than this file ever knew, if it is an old copy
		// put back: numbers that it has must not be given again.
		lane := &c.state.lanes[l]
		lane.next = max(lane.next, s.acked[l].Load()+1)
	}
	if s.tight() {
		// At the quota, what the far end has makes room before anything is refused
		// or removed. If that fails, so will what follows, and says why.
		_ = s.write(nil, 0)
	}
	room, alarms := s.room()
	p := c.planner.prepare(c.entries, &c.state, c.receipts, &s.opt, room, alarms)
	for s.over(p.cost) > surelyRemoved && s.makeWay(s.over(p.cost)) {
	}
	err := s.write(p, 0)
	for err != nil {
		if diskFull(err) && s.makeWay(p.cost+commitRoom) {
			err = s.write(p, 0)
			continue
		}
		s.pause(err)
		open := s.wait(retryPause)
		// What the far end has is deleted first, by itself: that makes room.
		err = s.write(nil, 0)
		if err == nil {
			err = s.write(p, 0)
		}
		if err != nil && !open {
			break
		}
	}
	if err == nil {
		s.resume()
		c.receipts.committed()
		c.appended += p.appended
		c.duplicates += p.duplicates
		c.refused += p.refused
	}
	s.publish()
	for i := range c.entries {
		e := &c.entries[i]
		switch {
		case e.err != nil:
		case err != nil:
			e.err = fmt.Errorf("commit: %w: %w", ErrClosed, err)
		}
		e.done(e.err)
	}
	if err == nil && len(p.segments) > 0 {
		select {
		case s.changed <- struct{}{}:
		default:
		}
	}
	return err == nil
}

// refuse tells the senders of what is left that it will not be stored.
func (s *Store) refuse() {
	for _, e := range s.group.take(nil) {
		e.done(ErrClosed)
	}
}

// wait sleeps, doing repairs meanwhile; false when the store closes.
func (s *Store) wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return true
		case r := <-s.repairs:
			s.repair(r.db, r.cause)
			close(r.reply)
		case <-s.stop:
			return false
		}
	}
}

// tight reports whether the group may not fit the quota.
func (s *Store) tight() bool {
	need := int64(commitRoom)
	for i := range s.c.entries {
		need += pagesOf(s.c.entries[i].bytes + valueHeader)
	}
	return s.used()+need > s.opt.Quota-s.opt.Quota/16
}

// room is what the quota leaves for telemetry and for alarms.
func (s *Store) room() (telemetry, alarms int64) {
	if s.opt.Policy == DropOldest {
		// Anything that fits an empty store fits: the rest makes way.
		fits := s.opt.Quota - 2*commitRoom
		return fits, fits
	}
	left := s.opt.Quota - s.used() - commitRoom
	return left - s.opt.Quota/16, left
}

// over is by how many bytes a commit of cost would pass the quota, if that is for
// DropOldest to prevent.
func (s *Store) over(cost int64) int64 {
	if s.opt.Policy != DropOldest {
		return 0
	}
	return s.used() + cost + commitRoom - s.opt.Quota
}

// makeWay removes what is acknowledged and then the oldest readings, if that is
// the policy, for need bytes of pages, and reports whether there
// was anything. That takes a commit of its own: bbolt gives pages out again only
// after the commit that freed them.
func (s *Store) makeWay(need int64) bool {
	if s.opt.Policy != DropOldest {
		return false
	}
	before := s.c.state.readings()
	return s.write(nil, need) == nil && s.c.state.readings() < before
}

// used is the bytes of the pages in use. A file that cannot say is about to be
// found damaged by the commit.
func (s *Store) used() int64 {
	file, free, err := s.db.Load().sizes()
	if err != nil {
		return 0
	}
	return file - free
}

// write carries out p, with the deletions that are due, in one transaction. A
// nil p is the deletions alone, of excess bytes at least. Nothing to do is not an
// error.
func (s *Store) write(p *plan, excess int64) error {
	c := &s.c
	var cost int64 = commitRoom
	j := job{suspects: s.suspected(), excess: excess}
	deletes := len(j.suspects) > 0 || excess > 0
	for l := range j.acked {
		j.acked[l] = s.acked[l].Load()
		deletes = deletes || j.acked[l] > c.state.lanes[l].acked
	}
	if p != nil && p.writes() && !p.stored {
		j.plan = p
		cost += p.cost
		j.excess = s.over(p.cost)
	} else if !deletes {
		return nil
	}
	if err := s.diskRoom(cost); err != nil {
		return err
	}
	start := time.Now()
	changed, err := s.update(j)
	if errors.Is(err, errDamaged) {
		if !s.repair(s.db.Load(), err) {
			return err
		}
		changed, err = s.update(j)
	}
	if err != nil {
		return err
	}
	c.latencyLast = time.Since(start)
	c.latencyMax = max(c.latencyMax, c.latencyLast)
	c.commits++
	c.dbCommits++
	c.state, c.oldest = changed.state, changed.oldest
	if j.plan != nil && !j.plan.stored {
		// This transaction only completed an earlier one.
		return s.write(p, excess)
	}
	s.unsuspect(changed.moved)
	s.db.Load().touch(changed.touched)
	if changed.more {
		s.group.acknowledged(ackReadings)
	}
	return nil
}

// update runs j in a transaction of its own.
//
// When bbolt reports an error the transaction may have happened all the same: if
// the meta page was written and only its sync failed, readers see it, and so will
// the next start. Writing the plan again would then double it. A transaction's
// number tells: it has grown past the failed one only if that one counts. Then
// all that is missing is a sync, which this transaction brings.
func (s *Store) update(j job) (change, error) {
	c := &s.c
	var made change
	again := false
	id, err := s.db.Load().update(func(tx *bbolt.Tx) error {
		if c.attemptID != 0 && tx.ID() > c.attemptID {
			made, again = c.attempt, true
			return putState(tx, &made.state)
		}
		var err error
		made, err = j.apply(tx, c.state)
		return err
	})
	switch {
	case err != nil && again:
		// Still only the sync is missing.
		return change{}, err
	case err != nil:
		c.attempt, c.attemptPlan, c.attemptID = made, j.plan, id
		return change{}, err
	case again && c.attemptPlan != nil:
		c.attemptPlan.stored = true
	case !again && j.plan != nil:
		j.plan.stored = true
	}
	c.attempt, c.attemptPlan, c.attemptID = change{}, nil, 0
	return made, nil
}

// diskRoom refuses a commit of cost bytes that would have to grow the file on a
// full disk: bbolt recovers from running into that by walking the whole tree.
func (s *Store) diskRoom(cost int64) error {
	db := s.db.Load()
	if _, free, err := db.sizes(); err != nil || free >= cost {
		return nil
	}
	left, err := diskFree(filepath.Dir(s.opt.Path))
	if err != nil || left >= cost {
		return nil
	}
	return fmt.Errorf("%d bytes left on the disk, %d needed: %w", left, cost, syscall.ENOSPC)
}

// pause says why nothing is written, and gives up the reserve if that can help.
func (s *Store) pause(err error) {
	c := &s.c
	reason := err.Error()
	if diskFull(err) {
		reason = fmt.Sprintf("disk full: %v; free space on the file system of %s, storing resumes by itself", err, s.opt.Path)
		s.ballast.release()
	}
	if c.paused == "" {
		c.pausedSince = time.Now()
		s.opt.Logger.Error("storing is paused", "reason", reason)
	}
	c.paused = reason
	s.publish()
}

// resume ends a pause.
func (s *Store) resume() {
	c := &s.c
	if !s.ballast.held {
		// If the disk is still nearly full, a later commit tries again.
		_ = s.ballast.create()
	}
	if c.paused == "" {
		return
	}
	s.opt.Logger.Info("storing has resumed", "paused", time.Since(c.pausedSince).Round(time.Millisecond))
	c.paused = ""
}

// repair rebuilds the file that db has open, unless that was done already. It
// reports whether the store can be used.
func (s *Store) repair(db *database, cause error) bool {
	c := &s.c
	if s.db.Load() != db {
		return true
	}
	written := c.written + db.written(c.dbCommits)
	st, err := s.setAside(&c.state, cause)
	if err == nil {
		var fresh *database
		if fresh, err = openDatabase(s.opt.Path); err == nil {
			c.state = st
			c.written, c.dbCommits = written, 0
			c.attempt, c.attemptPlan, c.attemptID = change{}, nil, 0
			c.oldest, err = fresh.oldest()
			s.db.Store(fresh)
		}
	}
	if err != nil {
		s.pause(fmt.Errorf("rebuild the damaged file: %w", err))
		return false
	}
	s.publish()
	return true
}

func (s *Store) suspected() []segmentKey {
	s.suspectsMu.Lock()
	defer s.suspectsMu.Unlock()
	var ks []segmentKey
	for k := range s.suspects {
		ks = append(ks, k)
	}
	return ks
}

func (s *Store) unsuspect(ks []segmentKey) {
	if len(ks) == 0 {
		return
	}
	s.suspectsMu.Lock()
	defer s.suspectsMu.Unlock()
	for _, k := range ks {
		delete(s.suspects, k)
		s.opt.Logger.Warn("a stored value was damaged and is set aside", "lane", k.lane.String(), "first", k.first)
	}
}
