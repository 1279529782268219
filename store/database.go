package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"sluice/reading"
)

// allocStep is by how much bbolt grows the file, with a sync each time.
const allocStep = 4 << 20

// database is an open bbolt file whose panics and faults are errors that wrap
// errDamaged. After one of those it is never touched again, not even closed:
// locks inside may be held for ever, so its mapping is left behind.
type database struct {
	bolt    *bbolt.DB
	log     *boltLog
	broken  atomic.Bool
	touched atomic.Int64 // bytes of the mapping looked at since it was last let go
}

// guard turns a panic, and a fault on a page that is not there, into an error.
func guard(what string, fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: %v: %w", what, p, errDamaged)
		}
	}()
	return fn()
}

// openDatabase opens a file that was found to be whole. bbolt looks at a page of
// every value to find the free ones, and Linux maps up to sixteen around each:
// without letting go, the whole file would count as memory.
func openDatabase(path string) (*database, error) {
	defer keepLettingGo(path)()
	return openBolt(path, false)
}

func openBolt(path string, noSync bool) (*database, error) {
	return openWith(path, &bbolt.Options{NoSync: noSync})
}

func openWith(path string, o *bbolt.Options) (db *database, err error) {
	log := &boltLog{Logger: &bbolt.DefaultLogger{Logger: log.New(io.Discard, "", 0)}, path: path}
	o.Timeout = time.Second
	o.PageSize = pageSize
	o.FreelistType = bbolt.FreelistMapType
	o.NoFreelistSync = true
	o.Logger = log
	err = guard("open", func() error {
		bolt, err := bbolt.Open(path, 0o600, o)
		if errors.Is(err, bolterrors.ErrTimeout) {
			return ErrInUse
		}
		if err != nil {
			return err
		}
		bolt.AllocSize = allocStep
		db = &database{bolt: bolt, log: log}
		return nil
	})
	return db, err
}

func (d *database) close() error {
	if d.broken.Load() {
		return nil
	}
	return guard("close", d.bolt.Close)
}

func (d *database) view(fn func(*bbolt.Tx) error) error {
	return d.guard("read", func() error { return d.bolt.View(fn) })
}

func (d *database) guard(what string, fn func() error) error {
	if d.broken.Load() {
		return fmt.Errorf("%s: abandoned: %w", what, errDamaged)
	}
	err := guard(what, fn)
	if errors.Is(err, errDamaged) {
		d.broken.Store(true)
	}
	return err
}

// update runs fn in a write transaction. It does not use bbolt's own Update,
// which answers a panic with a rollback that walks the same damaged pages in a
// goroutine of its own, where the second panic would end the process. id is the
// transaction's.
func (d *database) update(fn func(*bbolt.Tx) error) (id int, err error) {
	err = d.guard("commit", func() error {
		tx, err := d.bolt.Begin(true)
		if err != nil {
			return err
		}
		id = tx.ID()
		if err := fn(tx); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		d.log.committing = true
		defer func() { d.log.committing = false }()
		return tx.Commit()
	})
	return id, err
}

// boltLog is bbolt's logger. A commit that meets an error logs it and then rolls
// back by walking the whole tree in a goroutine of its own, where a damaged page
// would end the process. So the first error has the file walked here, and damage
// ends the commit before bbolt's walk, by a panic for guard.
type boltLog struct {
	bbolt.Logger // discards
	path         string
	committing   bool // by the goroutine that has the write transaction
}

func (l *boltLog) Errorf(string, ...any) {
	if !l.committing {
		return
	}
	l.committing = false
	if err := whole(l.path); err != nil {
		panic(err)
	}
}

// sizes returns the bytes of the file that pages lie in, used or not, and those
// of the free ones.
func (d *database) sizes() (file, free int64, err error) {
	err = d.view(func(tx *bbolt.Tx) error {
		file = tx.Size()
		return nil
	})
	s := d.bolt.Stats()
	return file, int64(s.FreePageN+s.PendingPageN) * pageSize, err
}

// written returns the bytes written to the file since it was opened: the pages
// of every commit, and its meta page.
func (d *database) written(commits uint64) int64 {
	s := d.bolt.Stats()
	return s.TxStats.GetPageAlloc() + int64(commits)*pageSize
}

// oldest returns when the first value of each lane was stored, 0 if it has none.
func (d *database) oldest() (oldest [reading.Lanes]int64, err error) {
	err = d.view(func(tx *bbolt.Tx) error {
		oldest = oldestStored(tx)
		return nil
	})
	return oldest, err
}

// mapLimit is how much of the mapping may have been looked at before it is let
// go: what is mapped and touched counts as the process's memory, and must not
// grow with the backlog.
const mapLimit = 4 << 20

// touch notes that n bytes of the mapping were looked at.
func (d *database) touch(n int) {
	if d.touched.Add(int64(n)) < mapLimit {
		return
	}
	d.touched.Store(0)
	// In a transaction the mapping stays where it is, and its part up to the
	// high-water mark exists. Damage, if any, shows itself to others.
	_ = d.view(func(tx *bbolt.Tx) error {
		letGo(d.bolt.Info().Data, uintptr(tx.Size()))
		return nil
	})
}

// createDatabase puts a new database with the given state at path, whole or not
// at all. fill, unless nil, adds to it before, and to the state.
func createDatabase(path string, st *state, fill func(*database) error) (err error) {
	temp := path + ".new"
	// Syncing once at the end is enough for a file that does not count before.
	db, err := openBolt(temp, true)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(temp)
		}
	}()
	_, err = db.update(createBuckets)
	if err == nil && fill != nil {
		err = fill(db)
	}
	if err == nil {
		_, err = db.update(func(tx *bbolt.Tx) error { return putState(tx, st) })
	}
	if err == nil {
		err = guard("sync", db.bolt.Sync)
	}
	if err = errors.Join(err, db.close()); err != nil {
		return fmt.Errorf("create %s: %w", temp, err)
	}
	if err := syncFile(temp); err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	return syncFile(filepath.Dir(path))
}

// syncFile syncs a file or directory by name.
func syncFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// key is a segment's key in its lane's bucket.
func key(first uint64) []byte { return binary.BigEndian.AppendUint64(nil, first) }
