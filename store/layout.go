package store

import (
	"encoding/binary"
	"fmt"

	"go.etcd.io/bbolt"

	"sluice/reading"
)

var (
	bucketMeta     = []byte("meta")     // keyState to the state
	bucketReceipts = []byte("receipts") // sender to its receipts
	bucketDamaged  = []byte("damaged")  // lane and sequence number to a value that failed its checksum
	bucketLanes    = [reading.Lanes][]byte{[]byte("alarm"), []byte("live"), []byte("backfill")}

	buckets = append([][]byte{bucketMeta, bucketReceipts, bucketDamaged}, bucketLanes[:]...)

	keyState = []byte("state")
	keyValue = []byte("v") // the only key of a large value's own bucket
)

// ownBucket is the size above which a value lies in a bucket of its own.
const ownBucket = pageSize / 2

// maxSetAside is how many damaged values are kept for whoever wants to look.
const maxSetAside = 64

func createBuckets(tx *bbolt.Tx) error {
	for _, name := range buckets {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	return nil
}

// missing is what a bucket that must be there and is not means.
func missing(name []byte) error { return fmt.Errorf("bucket %q missing: %w", name, errDamaged) }

func bucketOf(tx *bbolt.Tx, name []byte) (*bbolt.Bucket, error) {
	b := tx.Bucket(name)
	if b == nil {
		return nil, missing(name)
	}
	return b, nil
}

func putState(tx *bbolt.Tx, s *state) error {
	b, err := bucketOf(tx, bucketMeta)
	if err != nil {
		return err
	}
	return b.Put(keyState, s.encode())
}

// putValue stores v under k. v must stay as it is until the commit.
func putValue(b *bbolt.Bucket, k, v []byte) error {
	// Keys only ever grow, so full pages stay full.
	b.FillPercent = 1
	if len(v) <= ownBucket {
		return b.Put(k, v)
	}
	own, err := b.CreateBucket(k)
	if err != nil {
		return err
	}
	return own.Put(keyValue, v)
}

// stored returns the value at a cursor's k and v.
func stored(b *bbolt.Bucket, k, v []byte) []byte {
	if v != nil {
		return v
	}
	own := b.Bucket(k)
	if own == nil {
		return nil
	}
	return own.Get(keyValue)
}

// deleteValue removes what putValue stored.
func deleteValue(b *bbolt.Bucket, k []byte, own bool) error {
	if own {
		return b.DeleteBucket(k)
	}
	return b.Delete(k)
}

// pagesOf is about what storing n bytes takes from the quota.
func pagesOf(n int) int64 {
	if n <= ownBucket {
		return int64(n + elemHeader + 8)
	}
	return int64(n+pageHeader+elemHeader+1+pageSize-1) / pageSize * pageSize
}

func oldestStored(tx *bbolt.Tx) (oldest [reading.Lanes]int64) {
	for l, name := range bucketLanes {
		b := tx.Bucket(name)
		if b == nil {
			continue
		}
		k, v := b.Cursor().First()
		if k == nil {
			continue
		}
		if v = stored(b, k, v); len(v) >= valueHeader {
			oldest[l] = int64(binary.BigEndian.Uint64(v[16:]))
		}
	}
	return oldest
}

func loadReceipts(db *database) (*receipts, error) {
	rs := newReceipts()
	err := db.view(func(tx *bbolt.Tx) error {
		b, err := bucketOf(tx, bucketReceipts)
		if err != nil {
			return err
		}
		stored := map[string][]byte{}
		if err := b.ForEach(func(k, v []byte) error {
			stored[string(k)] = v
			return nil
		}); err != nil {
			return err
		}
		rs.load(stored) // copies
		return nil
	})
	return rs, err
}
