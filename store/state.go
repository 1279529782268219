package store

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"sluice/reading"
)

const (
	stateFormat = 1
	stateSize   = 4 + 4 + 8*(3+5*reading.Lanes)
)

// laneState is what a lane holds.
type laneState struct {
	next     uint64 // the next sequence number to give
	acked    uint64 // deleted up to here because the far end has it
	readings uint64 // stored
	bytes    uint64 // of stored values
	removed  uint64 // readings that the policy removed, ever
}

// state is everything about the store that is not a reading or a receipt. It is
// one value with a checksum, written in every commit: it lies in the page of the
// root, which every commit writes.
type state struct {
	epoch   uint64
	damaged uint64 // readings set aside because their value was damaged, ever
	uses    uint64 // counts receipts: the order in which senders were last seen
	lanes   [reading.Lanes]laneState
}

func newState() state {
	var b [8]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	s := state{epoch: binary.BigEndian.Uint64(b[:]) | 1}
	for l := range s.lanes {
		s.lanes[l].next = 1
	}
	return s
}

// readings is how many are stored.
func (s *state) readings() (n uint64) {
	for _, lane := range s.lanes {
		n += lane.readings
	}
	return n
}

func (s *state) fields() []*uint64 {
	f := []*uint64{&s.epoch, &s.damaged, &s.uses}
	for l := range s.lanes {
		l := &s.lanes[l]
		f = append(f, &l.next, &l.acked, &l.readings, &l.bytes, &l.removed)
	}
	return f
}

func (s *state) encode() []byte {
	b := make([]byte, 8, stateSize)
	binary.BigEndian.PutUint32(b[4:], stateFormat)
	for _, f := range s.fields() {
		b = binary.BigEndian.AppendUint64(b, *f)
	}
	binary.BigEndian.PutUint32(b, crc32.Checksum(b[4:], castagnoli))
	return b
}

func decodeState(b []byte) (state, error) {
	if len(b) < 8 || crc32.Checksum(b[4:], castagnoli) != binary.BigEndian.Uint32(b) {
		return state{}, fmt.Errorf("state: %w", errDamaged)
	}
	if format := binary.BigEndian.Uint32(b[4:]); format != stateFormat || len(b) != stateSize {
		return state{}, fmt.Errorf("format %d is not known, this program reads %d: use the program that wrote it", format, stateFormat)
	}
	var s state
	for i, f := range s.fields() {
		*f = binary.BigEndian.Uint64(b[8+8*i:])
	}
	return s, nil
}
