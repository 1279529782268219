package store

import (
	"encoding/binary"
	"errors"
	"hash/crc32"

	"sluice/reading"
)

// A stored value, big-endian:
//
//	 0  crc      4  CRC-32C of everything behind it
//	 4  version  1
//	 5  lane     1
//	 6  count    2  readings in data
//	 8  first    8  sequence number of the first reading, also the key
//	16  stored   8  nanoseconds since 1970
//	24  epoch    8
//	32  acked    8  what the lane's far end was known to have when this was written
//	40  data        encoded by reading.AppendBatch
//
// Lane, first, epoch and acked repeat what the tree knows, for the day when the
// tree is gone: a value found in a stray page can then be put in its place, or
// recognised as long delivered.
const (
	valueVersion = 1
	valueHeader  = 40
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var (
	errValue = errors.New("value damaged")
	// errDamaged is wrapped by every error that says that the file, not the disk
	// or the caller, is at fault.
	errDamaged = errors.New("file damaged")
)

// maxSequence bounds sequence numbers, so that sums of them cannot wrap.
const maxSequence = 1 << 62

type value struct {
	lane   reading.Lane
	count  int
	first  uint64
	stored int64
	epoch  uint64
	acked  uint64
	data   []byte
}

func (v value) last() uint64 { return v.first + uint64(v.count) - 1 }

// appendHeader appends room for a header; seal fills it in.
func appendHeader(dst []byte) []byte {
	return append(dst, make([]byte, valueHeader)...)
}

// seal writes v's header, without its data, to the front of b, whose data is
// already there.
func seal(b []byte, v value) {
	b[4], b[5] = valueVersion, byte(v.lane)
	binary.BigEndian.PutUint16(b[6:], uint16(v.count))
	binary.BigEndian.PutUint64(b[8:], v.first)
	binary.BigEndian.PutUint64(b[16:], uint64(v.stored))
	binary.BigEndian.PutUint64(b[24:], v.epoch)
	binary.BigEndian.PutUint64(b[32:], v.acked)
	binary.BigEndian.PutUint32(b, crc32.Checksum(b[4:], castagnoli))
}

// openValue checks b and takes it apart; data points into b. The error is
// errValue; the header's fields are returned even then if b is long enough,
// because a count that may be wrong is better than none.
func openValue(b []byte) (value, error) {
	if len(b) < valueHeader {
		return value{}, errValue
	}
	v := value{
		lane:   reading.Lane(b[5]),
		count:  int(binary.BigEndian.Uint16(b[6:])),
		first:  binary.BigEndian.Uint64(b[8:]),
		stored: int64(binary.BigEndian.Uint64(b[16:])),
		epoch:  binary.BigEndian.Uint64(b[24:]),
		acked:  binary.BigEndian.Uint64(b[32:]),
		data:   b[valueHeader:],
	}
	if b[4] != valueVersion || v.lane >= reading.Lanes || v.count == 0 || v.first == 0 || v.first > maxSequence ||
		crc32.Checksum(b[4:], castagnoli) != binary.BigEndian.Uint32(b) {
		return v, errValue
	}
	return v, nil
}

// segmentKey names a stored value.
type segmentKey struct {
	lane  reading.Lane
	first uint64
}
