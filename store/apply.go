package store

import (
	"encoding/binary"

	"go.etcd.io/bbolt"

	"sluice/reading"
)

// What bounds the deletions of one commit; the rest follows at once.
const (
	maxDeletes = 4096
	// Deleting looks at a page of each value in a bucket of its own, and Linux
	// maps up to sixteen around it: all of that counts as memory until touch.
	maxTouched  = 8 << 20
	touchedOwn  = 16 * pageSize
	touchedLeaf = 256 // many values lie in one page
	// surelyRemoved is how many bytes one commit can remove of values however
	// small: a page of each that has a bucket of its own.
	surelyRemoved = maxTouched / touchedOwn * pageSize
)

// change is what a transaction made of the store.
type change struct {
	state   state
	oldest  [reading.Lanes]int64
	moved   []segmentKey // damaged values set aside, or found to be gone
	deletes int
	touched int  // bytes of the mapping that deleting looked at
	more    bool // acknowledged values are left for the next commit
}

// job is everything one transaction is told to do.
type job struct {
	plan     *plan // nil to delete only
	acked    [reading.Lanes]uint64
	suspects []segmentKey
	// excess is how many bytes have to go first, the oldest readings' if those that
	// are acknowledged are not enough.
	excess int64
}

// apply carries out j in tx, beginning from before.
func (j job) apply(tx *bbolt.Tx, before state) (change, error) {
	c := change{state: before}
	var lanes [reading.Lanes]*bbolt.Bucket
	for l := range lanes {
		b, err := bucketOf(tx, bucketLanes[l])
		if err != nil {
			return c, err
		}
		lanes[l] = b
	}
	for _, k := range j.suspects {
		if err := c.setAside(tx, lanes[k.lane], k); err != nil {
			return c, err
		}
	}
	excess := j.excess
	for l, upto := range j.acked {
		st := &c.state.lanes[l]
		if upto > st.acked {
			done, _, err := c.deleteWhile(lanes[l], st, func(last uint64, size int) bool {
				if last > upto {
					return false
				}
				excess -= pagesOf(size)
				return true
			})
			if err != nil {
				return c, err
			}
			if done {
				st.acked = upto
			} else {
				c.more = true
			}
		}
	}
	for _, l := range []reading.Lane{reading.Backfill, reading.Live, reading.Alarm} {
		if excess <= 0 {
			break
		}
		st := &c.state.lanes[l]
		_, removed, err := c.deleteWhile(lanes[l], st, func(_ uint64, size int) bool {
			if excess <= 0 {
				return false
			}
			excess -= pagesOf(size)
			return true
		})
		if err != nil {
			return c, err
		}
		st.removed += removed
	}
	if j.plan != nil {
		if err := c.put(tx, lanes, j.plan); err != nil {
			return c, err
		}
	}
	for l, b := range lanes {
		// An empty lane settles what an unreadable header may have miscounted.
		if k, _ := b.Cursor().First(); k == nil {
			c.state.lanes[l].readings, c.state.lanes[l].bytes = 0, 0
		}
	}
	c.oldest = oldestStored(tx)
	return c, putState(tx, &c.state)
}

// deleteWhile deletes values from the front of a lane while want says so of
// their last sequence number and size. all is false if it stopped at maxDeletes.
func (c *change) deleteWhile(b *bbolt.Bucket, st *laneState, want func(last uint64, size int) bool) (all bool, readings uint64, err error) {
	type victim struct {
		key   []byte
		own   bool
		count uint64
		size  uint64
	}
	var victims []victim
	all = true
	cursor := b.Cursor()
	for k, v := cursor.First(); k != nil; k, v = cursor.Next() {
		if c.deletes == maxDeletes || c.touched >= maxTouched {
			all = false
			break
		}
		val := stored(b, k, v)
		h, _ := openHeader(val, binary.BigEndian.Uint64(k))
		if !want(h.last(), len(val)) {
			break
		}
		c.deletes++
		if c.touched += touchedLeaf; v == nil {
			c.touched += touchedOwn
		}
		// Deleting under the cursor would confuse it: first look, then delete.
		victims = append(victims, victim{append([]byte(nil), k...), v == nil, uint64(h.count), uint64(len(val))})
	}
	for _, d := range victims {
		if err := deleteValue(b, d.key, d.own); err != nil {
			return false, 0, err
		}
		st.readings -= min(st.readings, d.count)
		st.bytes -= min(st.bytes, d.size)
		readings += d.count
	}
	return all, readings, nil
}

// openHeader reads a value's header without its checksum, which would touch
// every page of it. A header that contradicts its key counts as one reading.
func openHeader(b []byte, first uint64) (value, bool) {
	if len(b) >= valueHeader && binary.BigEndian.Uint64(b[8:]) == first {
		if n := int(binary.BigEndian.Uint16(b[6:])); n > 0 {
			return value{first: first, count: n}, true
		}
	}
	return value{first: first, count: 1}, false
}

// setAside moves a value that Next found damaged to where it is out of the way,
// and counts it.
func (c *change) setAside(tx *bbolt.Tx, lane *bbolt.Bucket, sk segmentKey) error {
	c.moved = append(c.moved, sk)
	k := key(sk.first)
	v := lane.Get(k)
	own := v == nil
	val := stored(lane, k, v)
	if val == nil {
		return nil // acknowledged or removed meanwhile
	}
	aside, err := bucketOf(tx, bucketDamaged)
	if err != nil {
		return err
	}
	h, _ := openHeader(val, sk.first)
	size := uint64(len(val))
	copied := append([]byte(nil), val...)
	if err := deleteValue(lane, k, own); err != nil {
		return err
	}
	st := &c.state.lanes[sk.lane]
	st.readings -= min(st.readings, uint64(h.count))
	st.bytes -= min(st.bytes, size)
	c.state.damaged += uint64(h.count)

	// Keep the latest: make room before.
	cursor := aside.Cursor()
	n := 0
	var oldest []byte
	oldestOwn := false
	for k, v := cursor.First(); k != nil; k, v = cursor.Next() {
		if n == 0 {
			oldest, oldestOwn = append([]byte(nil), k...), v == nil
		}
		n++
	}
	if n >= maxSetAside {
		if err := deleteValue(aside, oldest, oldestOwn); err != nil {
			return err
		}
	}
	seq, err := aside.NextSequence()
	if err != nil {
		return err
	}
	name := binary.BigEndian.AppendUint64(nil, seq)
	name = append(name, byte(sk.lane))
	return putValue(aside, append(name, k...), copied)
}

// put stores what the plan holds.
func (c *change) put(tx *bbolt.Tx, lanes [reading.Lanes]*bbolt.Bucket, p *plan) error {
	for _, seg := range p.segments {
		if err := putValue(lanes[seg.lane], key(seg.first), p.arena[seg.lo:seg.hi]); err != nil {
			return err
		}
		st := &c.state.lanes[seg.lane]
		st.readings += uint64(seg.count)
		st.bytes += uint64(seg.hi - seg.lo)
	}
	for l := range lanes {
		c.state.lanes[l].next = p.next[l]
	}
	c.state.uses = p.uses
	if len(p.receipts) == 0 && len(p.gone) == 0 {
		return nil
	}
	b, err := bucketOf(tx, bucketReceipts)
	if err != nil {
		return err
	}
	for _, name := range p.gone {
		if err := b.Delete([]byte(name)); err != nil {
			return err
		}
	}
	for _, r := range p.receipts {
		if err := b.Put([]byte(r.sender), p.arena[r.lo:r.hi]); err != nil {
			return err
		}
	}
	return nil
}
