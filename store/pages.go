package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
)

// This file reads bbolt's file format (version 2) with bounds on everything and
// without a mapping. bbolt itself trusts the file: a wrong page number is a
// fault, a wrong type a panic, and some of that in goroutines of its own where
// nobody can recover. So a file is walked here before bbolt sees it.

const (
	pageSize   = 4096 // also where the system's is larger: a commit writes whole pages
	pageHeader = 16
	elemHeader = 16
	bucketHead = 16

	pageBranch = 0x01
	pageLeaf   = 0x02
	pageMeta   = 0x04

	boltMagic   = 0xED0CDAED
	boltVersion = 2

	maxNode  = 64 << 20 // bytes; no node of ours comes near
	maxDepth = 32       // of pages and of buckets
)

// pageFile is a bbolt file.
type pageFile struct {
	r    io.ReaderAt
	size int64
}

// bolt's meta page, what matters of it.
type boltMeta struct {
	root  uint64 // page of the root bucket
	pages uint64 // high-water mark
	txid  uint64
}

// meta reads meta page 0 or 1.
func (f pageFile) meta(i int64) (boltMeta, error) {
	var b [pageHeader + 64]byte
	if err := f.read(b[:], i*pageSize); err != nil {
		return boltMeta{}, err
	}
	m := b[pageHeader:]
	sum := fnv.New64a()
	sum.Write(m[:56])
	e := binary.NativeEndian
	// The page's own header is outside of the checksum.
	if e.Uint64(b[:]) != uint64(i) || e.Uint16(b[8:]) != pageMeta || e.Uint32(m) != boltMagic || e.Uint32(m[4:]) != boltVersion || e.Uint32(m[8:]) != pageSize || e.Uint64(m[56:]) != sum.Sum64() {
		return boltMeta{}, fmt.Errorf("meta page %d: %w", i, errDamaged)
	}
	return boltMeta{root: e.Uint64(m[16:]), pages: e.Uint64(m[40:]), txid: e.Uint64(m[48:])}, nil
}

// read fills b from off. Less than that is damage; what the disk refuses is too:
// a sector that cannot be read is as lost as one that reads wrong.
func (f pageFile) read(b []byte, off int64) error {
	if off < 0 || off+int64(len(b)) > f.size {
		return fmt.Errorf("%d bytes at %d: beyond the file's %d: %w", len(b), off, f.size, errDamaged)
	}
	if _, err := f.r.ReadAt(b, off); err != nil {
		return fmt.Errorf("%d bytes at %d: %v: %w", len(b), off, err, errDamaged)
	}
	return nil
}

// element is an entry of a page: of a branch it has a child page, of a leaf a
// value at off.
type element struct {
	key    []byte
	child  uint64
	bucket bool
	off    int64
	size   int64
}

// node reads the page at off and checks all that one page can say about itself.
// For a page inlined in a value, inline is the room it has; otherwise 0.
func (f pageFile) node(off, inline int64) (branch bool, pages uint64, es []element, err error) {
	bad := func(what string) (bool, uint64, []element, error) {
		return false, 0, nil, fmt.Errorf("page %d: %s: %w", off/pageSize, what, errDamaged)
	}
	first := int64(pageSize)
	if inline > 0 {
		first = inline
	}
	if first < pageHeader || first > maxNode {
		return bad("no possible size")
	}
	b := make([]byte, first)
	if err := f.read(b, off); err != nil {
		return false, 0, nil, err
	}
	e := binary.NativeEndian
	id, flags, count, overflow := e.Uint64(b), e.Uint16(b[8:]), int64(e.Uint16(b[10:])), int64(e.Uint32(b[12:]))
	total := first
	if inline == 0 {
		total = (overflow + 1) * pageSize
		if id != uint64(off/pageSize) {
			return bad("wrong number")
		}
	}
	if flags != pageBranch && flags != pageLeaf {
		return bad("neither branch nor leaf")
	}
	if off+total > f.size {
		return bad("reaches beyond the file")
	}
	if pageHeader+count*elemHeader > total {
		return bad("too many entries")
	}
	branch = flags == pageBranch
	if branch && count == 0 {
		return bad("empty branch")
	}
	// Read on only as far as the keys reach: what lies behind the last key of a
	// leaf is a value, and values are left alone here.
	extend := func(n int64) error {
		if n <= int64(len(b)) {
			return nil
		}
		if n > maxNode {
			return fmt.Errorf("page %d: larger than %d bytes: %w", off/pageSize, maxNode, errDamaged)
		}
		old := int64(len(b))
		b = append(b, make([]byte, n-old)...)
		return f.read(b[old:], off+old)
	}
	if err := extend(pageHeader + count*elemHeader); err != nil {
		return false, 0, nil, err
	}
	es = make([]element, count)
	for i := range es {
		at := int64(pageHeader + i*elemHeader)
		h := b[at : at+elemHeader]
		var el element
		var pos, ksize int64
		if branch {
			pos, ksize = int64(e.Uint32(h)), int64(e.Uint32(h[4:]))
			el.child = e.Uint64(h[8:])
		} else {
			el.bucket = e.Uint32(h)&1 != 0
			pos, ksize, el.size = int64(e.Uint32(h[4:])), int64(e.Uint32(h[8:])), int64(e.Uint32(h[12:]))
		}
		if ksize == 0 || pos < elemHeader || at+pos+ksize+el.size > total {
			return bad("entry outside the page")
		}
		if err := extend(at + pos + ksize); err != nil {
			return false, 0, nil, err
		}
		el.key = b[at+pos : at+pos+ksize]
		el.off = off + at + pos + ksize
		if i > 0 && bytes.Compare(es[i-1].key, el.key) >= 0 {
			return bad("keys out of order")
		}
		es[i] = el
	}
	return branch, uint64(total / pageSize), es, nil
}

// walk visits a tree.
type walk struct {
	f     pageFile
	pages uint64 // high-water mark
	seen  []uint64
	used  uint64 // pages reached
	// leaf is called for every entry that is not a bucket, with the names of the
	// buckets around it.
	leaf func(path []string, el element)
	// damage is called for what could not be read; the walk goes on beside it.
	damage func(error)
	// bucket is called with the names of every bucket and those around it.
	bucket func(path []string)
}

// newWalk prepares a walk from m. Pages 0 and 1 are the meta pages.
func newWalk(f pageFile, m boltMeta) *walk {
	n := min(m.pages, uint64(f.size/pageSize)+1)
	return &walk{f: f, pages: m.pages, seen: make([]uint64, n/64+1), used: 2, leaf: func([]string, element) {}, damage: func(error) {}, bucket: func([]string) {}}
}

// claim marks pages as reached, false if one is outside or was reached before.
func (w *walk) claim(first, n uint64) bool {
	if first < 2 || first+n > w.pages || first+n < first || (first+n)/64 >= uint64(len(w.seen)) {
		return false
	}
	for p := first; p < first+n; p++ {
		if w.seen[p/64]&(1<<(p%64)) != 0 {
			return false
		}
		w.seen[p/64] |= 1 << (p % 64)
	}
	w.used += n
	return true
}

// page visits the subtree at page id, whose keys are at least lo and below hi;
// nil is no limit.
func (w *walk) page(path []string, id uint64, lo, hi []byte, depth int) {
	if depth > maxDepth || id < 2 || id >= w.pages || int64(id) > w.f.size/pageSize {
		w.damage(fmt.Errorf("page %d: not a page of this tree: %w", id, errDamaged))
		return
	}
	branch, n, es, err := w.f.node(int64(id)*pageSize, 0)
	if err != nil {
		w.damage(err)
		return
	}
	if !w.claim(id, n) {
		w.damage(fmt.Errorf("page %d: used twice or beyond the last: %w", id, errDamaged))
		return
	}
	if len(es) > 0 && (lo != nil && bytes.Compare(es[0].key, lo) < 0 || hi != nil && bytes.Compare(es[len(es)-1].key, hi) >= 0) {
		w.damage(fmt.Errorf("page %d: keys do not belong here: %w", id, errDamaged))
		return
	}
	if !branch {
		w.entries(path, es, depth)
		return
	}
	for i, el := range es {
		top := hi
		if i+1 < len(es) {
			top = es[i+1].key
		}
		w.page(path, el.child, el.key, top, depth+1)
	}
}

func (w *walk) entries(path []string, es []element, depth int) {
	for _, el := range es {
		if !el.bucket {
			w.leaf(path, el)
			continue
		}
		inner := append(path[:len(path):len(path)], string(el.key))
		var head [bucketHead]byte
		if el.size < bucketHead || len(inner) > maxDepth {
			w.damage(fmt.Errorf("bucket %q: too small: %w", el.key, errDamaged))
			continue
		}
		if err := w.f.read(head[:], el.off); err != nil {
			w.damage(err)
			continue
		}
		w.bucket(inner)
		if root := binary.NativeEndian.Uint64(head[:]); root != 0 {
			w.page(inner, root, nil, nil, depth+1)
			continue
		}
		branch, _, es, err := w.f.node(el.off+bucketHead, el.size-bucketHead)
		if err == nil && branch {
			err = fmt.Errorf("bucket %q: branch inside a value: %w", el.key, errDamaged)
		}
		if err != nil {
			w.damage(err)
			continue
		}
		w.entries(inner, es, depth+1)
	}
}

// strays calls leaf for every entry of every page that looks like a leaf, in use
// or not.
func (f pageFile) strays(leaf func(el element)) {
	var visit func(es []element, depth int)
	visit = func(es []element, depth int) {
		for _, el := range es {
			switch {
			case !el.bucket:
				leaf(el)
			case el.size > bucketHead && depth < maxDepth:
				if branch, _, inner, err := f.node(el.off+bucketHead, el.size-bucketHead); err == nil && !branch {
					visit(inner, depth+1)
				}
			}
		}
	}
	for off := int64(2 * pageSize); off+pageSize <= f.size; off += pageSize {
		if branch, _, es, err := f.node(off, 0); err == nil && !branch {
			visit(es, 0)
		}
	}
}
