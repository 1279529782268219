// Package store keeps readings on disk, in one queue per lane, until the far end
// has them. It is the only package that knows bbolt.
//
// # Reading the source
//
// An Append waits in a group (group.go) until pace.go says that a commit is
// due; the one committer goroutine (committer.go) gives the group its sequence
// numbers and encodes it (prepare.go) and writes it in one transaction
// (apply.go): two syncs, however many batches. Next (next.go) reads, Ack only
// remembers: the deletion travels with a later commit. What a stored value looks
// like is in value.go and layout.go. A file that is not whole is found by
// pages.go, which reads bbolt's format without bbolt, and rebuilt by salvage.go.
//
// # What is on disk
//
// One bucket a lane maps the first sequence number of a segment to a value with
// its own checksum, epoch, sequence number and the lane's acknowledged position:
// each value can be understood without the tree around it, which is what makes a
// damaged file salvageable. A value above half a page gets a nested bucket to
// itself. bbolt keeps up to four large values in one leaf and writes the whole
// leaf for each one added; the nested bucket keeps what is written once from
// being written again, at the price of 40 bytes in the lane's own leaf.
//
// The list of free pages is not stored (bbolt's NoFreelistSync). Stored, it costs
// a page in every commit, and after a long outage has drained it costs 8 bytes a
// free page in every commit: 2 MB for a file of 1 GB. Left out, it is derived at
// Open by walking the tree's pages, without the values in them, and that walk has
// to be made anyway, because bbolt trusts what it reads.
//
// Sequence numbers start at 1, count readings, and never go back.
package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"sluice/reading"
)

var (
	// ErrBusy is returned by Append when the queue of batches waiting for the
	// disk stayed full until the context ended.
	ErrBusy = errors.New("store busy: keep the batch and send it again")
	// ErrFull is passed to done when the quota is reached and the policy is to
	// refuse, or when the batch is larger than the whole quota.
	ErrFull = errors.New("store full: keep the batch and send it again later")
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("store closed")
	// ErrInUse is returned when another process has the store open.
	ErrInUse = errors.New("store in use: stop the process that has it open first")
)

// Policy says what happens at the quota.
type Policy string

const (
	// Reject refuses new batches with ErrFull. The last sixteenth of the quota
	// is for alarms alone.
	Reject Policy = "reject"
	// DropOldest removes the oldest readings: of backfill first, then live,
	// alarms last. It does so on a full disk, too; Reject waits there.
	DropOldest Policy = "drop-oldest"
)

// The defaults of Options, and its limits.
const (
	DefaultCommitInterval = 200 * time.Millisecond
	DefaultCommitBytes    = 64 << 10
	MinQuota              = 1 << 20
	// MaxQuota32 is the largest quota where addresses have 32 bits: the file is
	// mapped whole, and bbolt doubles the mapping up to 1 GiB.
	MaxQuota32 = 768 << 20
)

// Options say how a store behaves.
type Options struct {
	// Path is the database file. Beside it lie a lock, a reserve against a full
	// disk, and files that were found damaged and set aside.
	Path string
	// Quota limits the bytes of the pages in use; MinQuota at least.
	Quota  int64
	Policy Policy
	// CommitInterval is the shortest time between two commits of telemetry and
	// the longest that a batch waits for one to start. 0 is the default.
	CommitInterval time.Duration
	// CommitBytes of waiting batches start a commit at once. 0 is the default.
	CommitBytes int
	// Delivering reports whether the uplink delivers at present: while it does
	// not, Live is stored as Backfill. Nil is always true. It must not block.
	Delivering func() bool
	// Now is the wall clock in nanoseconds since 1970. Nil is the system's.
	Now    func() int64
	Logger *slog.Logger
}

func (o *Options) complete() error {
	var errs []error
	if o.Path == "" {
		errs = append(errs, errors.New("path: empty, name the database file"))
	}
	if o.Quota < MinQuota {
		errs = append(errs, fmt.Errorf("quota %d: must be at least %d bytes", o.Quota, int64(MinQuota)))
	}
	if strconv.IntSize == 32 && o.Quota > MaxQuota32 {
		errs = append(errs, fmt.Errorf("quota %d: must be at most %d bytes on a 32-bit system", o.Quota, int64(MaxQuota32)))
	}
	if o.Policy != Reject && o.Policy != DropOldest {
		errs = append(errs, fmt.Errorf("policy %q: must be %q or %q", o.Policy, Reject, DropOldest))
	}
	if o.CommitInterval < 0 || o.CommitBytes < 0 {
		errs = append(errs, errors.New("commit interval and bytes: must not be negative"))
	}
	if o.CommitInterval == 0 {
		o.CommitInterval = DefaultCommitInterval
	}
	if o.CommitBytes == 0 {
		o.CommitBytes = DefaultCommitBytes
	}
	if o.Delivering == nil {
		o.Delivering = func() bool { return true }
	}
	if o.Now == nil {
		o.Now = func() int64 { return time.Now().UnixNano() }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return errors.Join(errs...)
}

// Store is an open store. Its methods may be called from any goroutine.
type Store struct {
	opt     Options
	pace    pace
	lock    *os.File
	ballast ballast

	db atomic.Pointer[database]

	group   group
	acked   [reading.Lanes]atomic.Uint64
	changed chan struct{}

	// suspects are values that Next found damaged and the committer has not yet
	// moved; suspectsMu guards the map.
	suspectsMu sync.Mutex
	suspects   map[segmentKey]struct{}

	repairs chan repairRequest
	c       committer // touched by the committer goroutine alone
	stop    chan struct{}
	stopped chan struct{}
	closing sync.Once // stops the committer
	closed  sync.Once // closes the files

	// statsMu guards stats, which the committer publishes after each commit.
	statsMu sync.Mutex
	stats   Stats
}

// Open opens the store at o.Path or creates it. A file that is damaged is set
// aside under a dated name and what can be read of it is kept; Stats says so. A
// store that another process has open is ErrInUse.
func Open(o Options) (*Store, error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("open store %s: %w", o.Path, err)
	}
	lock, err := lockFile(o.Path, true)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", o.Path, err)
	}
	s := &Store{
		opt:      o,
		pace:     pace{interval: o.CommitInterval, bytes: o.CommitBytes},
		lock:     lock,
		ballast:  ballast{path: o.Path + ".reserve"},
		changed:  make(chan struct{}, 1),
		suspects: map[segmentKey]struct{}{},
		repairs:  make(chan repairRequest),
		stop:     make(chan struct{}),
		stopped:  make(chan struct{}),
	}
	s.group.init(o.CommitBytes)
	s.stats.Quota = o.Quota
	if err := s.open(); err != nil {
		lock.Close()
		return nil, fmt.Errorf("open store %s: %w", o.Path, err)
	}
	for l := range s.acked {
		s.acked[l].Store(s.c.state.lanes[l].acked)
	}
	if err := s.ballast.create(); err != nil {
		o.Logger.Warn("no reserve against a full disk", "error", err)
	}
	s.publish()
	s.changed <- struct{}{}
	go s.run()
	return s, nil
}

// open leaves a whole database in s.db and its state in s.c, whatever the file
// was.
func (s *Store) open() error {
	if err := os.Remove(s.opt.Path + ".new"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	st, err := inspect(s.opt.Path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		st = newState()
		if err := createDatabase(s.opt.Path, &st, nil); err != nil {
			return err
		}
	case errors.Is(err, errDamaged):
		if st, err = s.setAside(nil, err); err != nil {
			return err
		}
	case err != nil:
		return err
	}
	db, err := openDatabase(s.opt.Path)
	if err != nil {
		return err
	}
	s.c.state = st
	if s.c.receipts, err = loadReceipts(db); err != nil {
		db.close()
		return err
	}
	if s.c.oldest, err = db.oldest(); err != nil {
		db.close()
		return err
	}
	s.db.Store(db)
	if files := setAsideFiles(s.opt.Path); s.c.setAside == "" && len(files) > 0 {
		s.c.setAside = files[len(files)-1]
	}
	return nil
}

// Close commits what waits, with the deletions that acknowledgements allow, and
// closes the file. Batches that cannot be committed get ErrClosed.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.group.close()
		close(s.stop)
	})
	<-s.stopped
	var err error
	s.closed.Do(func() { err = errors.Join(s.db.Load().close(), s.lock.Close()) })
	if err != nil {
		return fmt.Errorf("close store %s: %w", s.opt.Path, err)
	}
	return nil
}

// Append queues b, and calls done exactly once from another goroutine after b is
// synced to disk (nil) or can never be (ErrFull, ErrClosed). done must not block.
// Batches that one goroutine appends become durable, and their done is called, in
// that order; readings keep it within a lane. The store owns b's readings from
// the call on. A batch above 16 MiB is refused.
//
// Append blocks while the queue is full, until ctx ends: then it returns an error
// that wraps ErrBusy, and done is never called. A ctx that is cancelled with a
// cause before the commit begins has b refused with that cause, unless it is an
// alarm: so b cannot overtake what its sender has to send again.
//
// If b.Receipt says that it may be a repetition and the store remembers it, the
// batch is not stored again; its done follows the original's.
func (s *Store) Append(ctx context.Context, b reading.Batch, done func(error)) error {
	if b.Lane >= reading.Lanes {
		return fmt.Errorf("append to %v: there is no such lane", b.Lane)
	}
	return s.group.add(ctx, b, done)
}

// Ack says that the far end has every reading of lane up to and including upto.
// It only remembers; the next commit deletes, so that both share their syncs, or
// one of its own after a few seconds. If power goes before, the uplink sends
// again what the collector will recognise.
func (s *Store) Ack(lane reading.Lane, upto uint64) {
	if lane >= reading.Lanes || upto > maxSequence {
		return
	}
	for {
		old := s.acked[lane].Load()
		if upto <= old {
			return
		}
		if s.acked[lane].CompareAndSwap(old, upto) {
			s.group.acknowledged(upto - old)
			return
		}
	}
}

// Changed returns a channel that holds a value at first, and after new readings
// can be read. It is for one consumer; wakes coalesce.
func (s *Store) Changed() <-chan struct{} { return s.changed }

// Epoch identifies this life of the store: sequence numbers belong to it. It
// changes only if a damaged file could not even say what it was.
func (s *Store) Epoch() uint64 {
	s.statsMu.Lock()
	defer s.statsMu.Unlock()
	return s.stats.Epoch
}
