package store

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"sluice/reading"
)

// A damaged file is rebuilt so that no reading is lost that can be read and was
// not delivered, and none is delivered twice:
//
//   - The epoch and the readings' sequence numbers stay. Whatever the far end
//     already has comes again under the number it has it by, and is dropped.
//   - Values are taken from the tree, and, where the tree is torn, from every page
//     of the file that holds one: also from pages that were free. The newest
//     acknowledged position that any value carries keeps old ones out.
//   - New readings are numbered from a round number far beyond any that can have
//     been given, because the last ones may be among what is lost, and a number
//     given twice would look delivered. The far end sees a gap, as it does when
//     the quota removes something.
//
// What the crash of a commit left half written may be taken for a value: it was
// never acknowledged to its sender, so it may come twice. Only a file that lost
// its tree and a commit at once can do that.

// salvageStep is what the numbering jumps by: three months of readings at full
// speed; 8,000 damaged files fit below 2^53, where JSON's numbers end.
const salvageStep = 1 << 40

// keptFiles is how many damaged files stay beside the store.
const keptFiles = 3

// piece is a value found in a file.
type piece struct {
	lane   reading.Lane
	count  int
	size   int
	first  uint64
	stored int64
	acked  uint64
	epoch  uint64
	off    int64
	tree   bool // found where it belongs
}

func (p piece) last() uint64 { return p.first + uint64(p.count) - 1 }

// findings is what can be read of a file.
type findings struct {
	f        pageFile
	pieces   []piece // in order within a lane
	state    *state  // nil if unreadable
	receipts map[string][]byte
	damage   []error // the first few
	damages  int
	failed   int // values that failed their checksum
	aside    int // values set aside before
}

func (f *findings) bad(err error) {
	f.damages++
	if len(f.damage) < maxProblems {
		f.damage = append(f.damage, err)
	}
}

// openPages opens a database file for reading by pages. Something that can be no
// database is errDamaged.
func openPages(path string) (pageFile, *os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return pageFile{}, nil, err
	}
	if !info.Mode().IsRegular() {
		return pageFile{}, nil, fmt.Errorf("%s: not a file but %v: %w", path, info.Mode().Type(), errDamaged)
	}
	if info.Size() < 2*pageSize {
		return pageFile{}, nil, fmt.Errorf("%s: %d bytes: %w", path, info.Size(), errDamaged)
	}
	f, err := os.Open(path)
	if err != nil {
		return pageFile{}, nil, err
	}
	return pageFile{r: f, size: info.Size()}, f, nil
}

// metas returns the readable meta pages, newest first, and the first fault.
func (f pageFile) metas() (ms []boltMeta, err error) {
	for i := range int64(2) {
		m, e := f.meta(i)
		if e != nil {
			err = cmp.Or(err, e)
			continue
		}
		ms = append(ms, m)
	}
	slices.SortFunc(ms, func(a, b boltMeta) int { return cmp.Compare(b.txid, a.txid) })
	return ms, err
}

// inspect walks the file's pages without looking into values, and returns the
// state. The error is errDamaged if any page or the state is not as it has to be.
// A meta page that fails is damage too, although bbolt would go on with the
// other: that may be the one before the last commit.
func inspect(path string) (state, error) {
	f, file, err := openPages(path)
	if err != nil {
		return state{}, err
	}
	defer file.Close()
	st, _, err := f.survey()
	if err != nil {
		return state{}, fmt.Errorf("%s: %w", path, err)
	}
	return st, nil
}

// survey is inspect's work, and counts the pages in use.
func (f pageFile) survey() (st state, used uint64, err error) {
	missing := map[string]bool{}
	for _, name := range buckets {
		missing[string(name)] = true
	}
	found := false
	used, err = f.walkTree(func(w *walk) {
		w.leaf = func(path []string, el element) {
			if len(path) != 1 || path[0] != string(bucketMeta) || string(el.key) != string(keyState) {
				return
			}
			found = true
			var err error
			if st, err = readState(f, el); err != nil {
				w.damage(err)
			}
		}
		w.bucket = func(path []string) {
			if len(path) == 1 {
				delete(missing, path[0])
			}
		}
	})
	switch {
	case err != nil:
		return state{}, 0, err
	case !found || len(missing) > 0:
		return state{}, 0, fmt.Errorf("no whole store in it: %w", errDamaged)
	}
	return st, used, nil
}

// walkTree walks the newest tree, as set up, and returns how many pages it has
// and the first fault.
func (f pageFile) walkTree(setUp func(*walk)) (used uint64, err error) {
	ms, err := f.metas()
	if err != nil {
		return 0, err
	}
	if ms[0].pages > uint64(f.size/pageSize) {
		return 0, fmt.Errorf("%d bytes, %d pages expected: %w", f.size, ms[0].pages, errDamaged)
	}
	w := newWalk(f, ms[0])
	w.damage = func(e error) { err = cmp.Or(err, e) }
	setUp(w)
	w.page(nil, ms[0].root, nil, nil, 0)
	return w.used, err
}

// whole reports what bbolt could trip over in the file at path.
func whole(path string) error {
	f, file, err := openPages(path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = f.walkTree(func(*walk) {})
	return err
}

func readState(f pageFile, el element) (state, error) {
	b := make([]byte, min(el.size, 2*stateSize))
	if err := f.read(b, el.off); err != nil {
		return state{}, err
	}
	return decodeState(b)
}

// find reads everything that can be read of f.
func find(f pageFile) *findings {
	out := &findings{f: f, receipts: map[string][]byte{}}
	ms, err := f.metas()
	if err != nil {
		out.bad(err)
	}
	var buf []byte
	read := func(el element) (piece, bool) {
		if el.size < valueHeader || el.size > maxNode {
			return piece{}, false
		}
		buf = append(buf[:0], make([]byte, el.size)...)
		if f.read(buf, el.off) != nil {
			return piece{}, false
		}
		v, err := openValue(buf)
		return piece{lane: v.lane, count: v.count, size: len(buf), first: v.first, stored: v.stored, acked: v.acked, epoch: v.epoch, off: el.off}, err == nil
	}
	if len(ms) > 0 {
		w := newWalk(f, ms[0])
		w.damage = out.bad
		w.leaf = func(path []string, el element) {
			switch {
			case len(path) == 0:
			case path[0] == string(bucketMeta) && string(el.key) == string(keyState):
				if st, err := readState(f, el); err != nil {
					out.bad(err)
				} else {
					out.state = &st
				}
			case path[0] == string(bucketReceipts) && len(path) == 1:
				b := make([]byte, min(el.size, 8+8*maxKeep))
				if err := f.read(b, el.off); err == nil {
					out.receipts[string(el.key)] = b
				}
			case path[0] == string(bucketDamaged):
				out.aside++
			case path[0] == string(bucketLanes[0]) || path[0] == string(bucketLanes[1]) || path[0] == string(bucketLanes[2]):
				p, ok := read(el)
				if !ok || path[0] != string(bucketLanes[p.lane]) {
					out.failed++
					return
				}
				p.tree = true
				out.pieces = append(out.pieces, p)
			}
		}
		w.page(nil, ms[0].root, nil, nil, 0)
	}
	if out.damages > 0 {
		out.findStrays(read)
	}
	slices.SortFunc(out.pieces, func(a, b piece) int {
		return cmp.Or(cmp.Compare(a.lane, b.lane), cmp.Compare(a.first, b.first))
	})
	out.separate()
	return out
}

// findStrays adds what lies outside of the tree, the tree's own once more.
func (f *findings) findStrays(read func(element) (piece, bool)) {
	var strays []piece
	f.f.strays(func(el element) {
		if p, ok := read(el); ok {
			strays = append(strays, p)
		}
	})
	epoch := f.epoch(strays)
	for _, p := range strays {
		if p.epoch == epoch {
			f.pieces = append(f.pieces, p)
		}
	}
}

// separate removes pieces that overlap another: what the tree holds comes before
// what does not, and newer before older.
func (f *findings) separate() {
	kept := f.pieces[:0]
	for _, p := range f.pieces {
		if n := len(kept) - 1; n >= 0 && kept[n].lane == p.lane && kept[n].last() >= p.first {
			k := kept[n]
			if k.tree || !p.tree && k.stored >= p.stored {
				continue
			}
			kept = kept[:n]
		}
		kept = append(kept, p)
	}
	f.pieces = kept
}

// epoch is the state's, or the one that most values carry, or 0.
func (f *findings) epoch(strays []piece) uint64 {
	if f.state != nil {
		return f.state.epoch
	}
	votes := map[uint64]int{}
	var best uint64
	for _, p := range slices.Concat(f.pieces, strays) {
		votes[p.epoch]++
		if votes[p.epoch] > votes[best] {
			best = p.epoch
		}
	}
	return best
}

// acked is the newest acknowledged position of each lane that anything carries.
func (f *findings) acked(epoch uint64) (acked [reading.Lanes]uint64) {
	if f.state != nil && f.state.epoch == epoch {
		for l := range acked {
			acked[l] = f.state.lanes[l].acked
		}
	}
	for _, p := range f.pieces {
		if p.epoch == epoch {
			acked[p.lane] = max(acked[p.lane], p.acked)
		}
	}
	return acked
}

// setAside rebuilds the store's file from what can be read of it, keeps the
// damaged one under a dated name, and returns the new file's state. known is
// what a running store knows to be true, nil at Open.
func (s *Store) setAside(known *state, cause error) (state, error) {
	path := s.opt.Path
	now := time.Unix(0, s.opt.Now()).UTC()
	aside := path + ".damaged-" + now.Format("20060102T150405Z")
	for n := 2; exists(aside); n++ {
		aside = fmt.Sprintf("%s.damaged-%s-%d", path, now.Format("20060102T150405Z"), n)
	}
	found := &findings{receipts: map[string][]byte{}}
	if f, file, err := openPages(path); err == nil {
		defer file.Close()
		found = find(f)
	} else if !errors.Is(err, errDamaged) {
		return state{}, err
	}
	st, pieces := found.rebuild(known)

	// The new file is whole before the old one loses its name, and takes the name
	// in one step: a crash in between leaves the damaged file, to be found again.
	// A directory cannot have two names; it holds nothing to lose.
	linked := os.Link(path, aside) == nil
	if !linked {
		if err := os.Rename(path, aside); err != nil {
			return state{}, err
		}
	}
	err := createDatabase(path, &st, func(db *database) error {
		if err := fillReceipts(db, found.receipts); err != nil {
			return err
		}
		pieces, err := fillPieces(db, &st, found.f, pieces)
		if diskFull(err) {
			// What cannot be delivered makes room for what can.
			s.ballast.release()
			removeOldest(path, aside, 1)
			pieces, err = fillPieces(db, &st, found.f, pieces)
		}
		if diskFull(err) {
			s.opt.Logger.Error("the disk is full: the rest of the damaged file stays in it; sluice store export reads it",
				"file", aside, "values", len(pieces))
			err = nil
		}
		return err
	})
	if err != nil {
		if linked {
			os.Remove(aside)
		} else {
			err = errors.Join(err, os.Rename(aside, path))
		}
		return state{}, err
	}
	s.c.setAside, s.c.cause, s.c.salvaged = aside, cause.Error(), st.readings()
	s.opt.Logger.Error("the store's file was damaged: it is set aside, what could be read is kept",
		"cause", cause, "file", aside, "readings", st.readings())
	removeOldest(path, aside, keptFiles)
	return st, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// rebuild decides what the new file begins with: its state, still without any
// value, and the values for it in order.
func (f *findings) rebuild(known *state) (state, []piece) {
	st := newState()
	epoch := f.epoch(nil)
	if epoch != 0 {
		st.epoch = epoch
	}
	acked := f.acked(epoch)
	if f.state != nil {
		st.damaged, st.uses = f.state.damaged, f.state.uses
	}
	if known != nil {
		st.epoch, st.damaged, st.uses = known.epoch, known.damaged, known.uses
	}
	for l := range st.lanes {
		lane := &st.lanes[l]
		top := acked[l]
		if f.state != nil {
			lane.removed = f.state.lanes[l].removed
			top = max(top, f.state.lanes[l].next)
		}
		for _, p := range f.pieces {
			if int(p.lane) == l && p.epoch == st.epoch {
				top = max(top, p.last())
			}
		}
		lane.acked = acked[l]
		lane.next = (top/salvageStep+1)*salvageStep + 1
		if known != nil {
			lane.acked, lane.next, lane.removed = known.lanes[l].acked, known.lanes[l].next, known.lanes[l].removed
		} else if epoch == 0 {
			lane.next = 1
		}
	}
	var keep []piece
	for _, p := range f.pieces {
		lane := st.lanes[p.lane]
		// What lies at or behind a known next number is a commit that failed; it
		// will be tried again.
		if p.epoch == st.epoch && p.last() > lane.acked && p.last() < lane.next {
			keep = append(keep, p)
		}
	}
	return st, keep
}

func fillReceipts(db *database, stored map[string][]byte) error {
	_, err := db.update(func(tx *bbolt.Tx) error {
		b, err := bucketOf(tx, bucketReceipts)
		if err != nil {
			return err
		}
		for name, v := range stored {
			if err := b.Put([]byte(name), v); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

// fillPieces copies values into a new file, some at a time, and counts them in
// st. rest are those that an error left out.
func fillPieces(db *database, st *state, f pageFile, pieces []piece) (rest []piece, err error) {
	const step = 4 << 20
	for len(pieces) > 0 {
		n, size := 0, 0
		for n < len(pieces) && (n == 0 || size+pieces[n].size <= step) {
			size += pieces[n].size
			n++
		}
		_, err := db.update(func(tx *bbolt.Tx) error {
			arena := make([]byte, size)
			for _, p := range pieces[:n] {
				b := arena[:p.size:p.size]
				arena = arena[p.size:]
				if err := f.read(b, p.off); err != nil {
					return err
				}
				lane, err := bucketOf(tx, bucketLanes[p.lane])
				if err != nil {
					return err
				}
				if err := putValue(lane, key(p.first), b); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return pieces, err
		}
		for _, p := range pieces[:n] {
			lane := &st.lanes[p.lane]
			lane.readings += uint64(p.count)
			lane.bytes += uint64(p.size)
		}
		pieces = pieces[n:]
	}
	return nil, nil
}

// setAsideFiles lists the damaged files beside path, oldest first.
func setAsideFiles(path string) []string {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), filepath.Base(path)+".damaged-") {
			names = append(names, filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
	slices.Sort(names)
	return names
}

// removeOldest keeps the damaged files of a failing card from filling it: keep
// remain, and newest among them, whatever the clock was when it got its name.
func removeOldest(path, newest string, keep int) {
	files := slices.DeleteFunc(setAsideFiles(path), func(name string) bool { return name == newest })
	for _, name := range files[:max(0, len(files)+1-keep)] {
		// A directory with something in it stays; it is nothing of ours.
		_ = os.Remove(name)
	}
}
