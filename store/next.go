package store

import (
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"sluice/reading"
)

// Next returns segments of lane that hold readings behind after, in order, of
// about maxBytes together: one at least if there is any, none if there is not.
// The first may begin at or before after, if after is inside it. Their data
// belongs to the caller.
//
// A value that fails its checksum is passed over, set aside and counted. A file
// that turns out damaged is rebuilt from what can be read of it while Next waits.
func (s *Store) Next(lane reading.Lane, after uint64, maxBytes int) ([]reading.Segment, error) {
	if lane >= reading.Lanes {
		return nil, fmt.Errorf("read %v: there is no such lane", lane)
	}
	after = max(after, s.acked[lane].Load())
	for attempt := 0; ; attempt++ {
		db := s.db.Load()
		segs, suspects, err := db.next(lane, after, maxBytes)
		if err == nil {
			s.suspect(suspects)
			n := 0
			for _, seg := range segs {
				n += len(seg.Data)
			}
			db.touch(n)
			return segs, nil
		}
		if errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
			return nil, ErrClosed
		}
		if !errors.Is(err, errDamaged) || attempt > 0 {
			return nil, fmt.Errorf("read lane %v: %w", lane, err)
		}
		r := repairRequest{db: db, cause: err, reply: make(chan struct{})}
		select {
		case s.repairs <- r:
			<-r.reply
		case <-s.stopped:
			return nil, ErrClosed
		}
	}
}

// next reads for Next. suspects are the values that failed.
func (d *database) next(lane reading.Lane, after uint64, maxBytes int) (segs []reading.Segment, suspects []segmentKey, err error) {
	err = d.view(func(tx *bbolt.Tx) error {
		b, err := bucketOf(tx, bucketLanes[lane])
		if err != nil {
			return err
		}
		cursor := b.Cursor()
		k, v := cursor.Seek(key(after + 1))
		// The segment before may reach beyond after.
		var pk, pv []byte
		if k == nil {
			pk, pv = cursor.Last()
		} else {
			pk, pv = cursor.Prev()
		}
		if pk != nil && len(pk) == 8 {
			h, ok := openHeader(stored(b, pk, pv), binary.BigEndian.Uint64(pk))
			if ok && h.last() > after {
				k, v = pk, pv
			} else if k != nil {
				k, v = cursor.Next()
			}
		} else if k != nil {
			k, v = cursor.Seek(k)
		}
		size := 0
		for ; k != nil; k, v = cursor.Next() {
			if len(k) != 8 {
				return fmt.Errorf("lane %v: key of %d bytes: %w", lane, len(k), errDamaged)
			}
			first := binary.BigEndian.Uint64(k)
			raw := stored(b, k, v)
			if size > 0 && size+len(raw) > maxBytes {
				return nil
			}
			val, err := openValue(raw)
			if err != nil || val.first != first || val.lane != lane {
				suspects = append(suspects, segmentKey{lane, first})
				if len(suspects) == maxDeletes {
					return nil
				}
				continue
			}
			segs = append(segs, reading.Segment{First: first, Count: val.count, Data: append([]byte(nil), val.data...)})
			size += len(raw)
		}
		return nil
	})
	return segs, suspects, err
}

// suspect hands values that failed to the committer.
func (s *Store) suspect(ks []segmentKey) {
	if len(ks) == 0 {
		return
	}
	fresh := false
	s.suspectsMu.Lock()
	for _, k := range ks {
		if _, known := s.suspects[k]; !known {
			s.suspects[k] = struct{}{}
			fresh = true
		}
	}
	s.suspectsMu.Unlock()
	if fresh {
		s.group.urge()
	}
}
