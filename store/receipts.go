package store

import (
	"container/list"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"sluice/reading"
)

// How much is remembered of who delivered what. Beyond it, the sender that has
// been silent the longest is forgotten.
const (
	maxSenders    = 4096
	maxReceipts   = 512 << 10 // of all senders
	maxKeep       = 4096
	maxSenderName = 1024
)

func checkReceipt(r reading.Receipt) error {
	if r.Keep < 0 || r.Keep > maxKeep {
		return fmt.Errorf("receipt of %q keeps %d: must be 0 to %d", r.Sender, r.Keep, maxKeep)
	}
	return nil
}

// senderName is a sender's name or, of one that is too long for a key, its hash:
// client identifiers and topics of 64 KB are allowed, and to refuse their messages
// would have them sent again for ever.
func senderName(name string) string {
	if len(name) <= maxSenderName {
		return name
	}
	return fmt.Sprintf("long:%x", sha256.Sum256([]byte(name)))
}

// sender is the last deliveries of one sender.
type sender struct {
	name  string
	ids   []uint64 // a ring once it is full
	next  int      // where the next one goes in a full ring
	used  uint64   // value of state.uses when last seen
	dirty bool
}

func (s *sender) add(id uint64, keep int) (grown int) {
	if keep != len(s.ids) && s.next != 0 {
		// The ring changes its size: straighten it.
		s.ids = slices.Concat(s.ids[s.next:], s.ids[:s.next])
		s.next = 0
	}
	switch {
	case len(s.ids) < keep:
		s.ids = append(s.ids, id)
		return 1
	case len(s.ids) > keep:
		before := len(s.ids)
		s.ids = append(slices.Clone(s.ids[before-keep+1:]), id)
		return len(s.ids) - before
	}
	s.ids[s.next] = id
	s.next = (s.next + 1) % keep
	return 0
}

// encode appends the sender's stored form: when last used, then its IDs, oldest
// first, all big-endian.
func (s *sender) encode(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, s.used)
	for i := range s.ids {
		dst = binary.BigEndian.AppendUint64(dst, s.ids[(s.next+i)%len(s.ids)])
	}
	return dst
}

// receipts is the memory of deliveries. The committer alone touches it.
type receipts struct {
	senders map[string]*list.Element // of *sender
	order   *list.List               // least recently used first
	ids     int
	dirty   []*sender
	gone    []string // forgotten since the last commit
}

func newReceipts() *receipts {
	return &receipts{senders: map[string]*list.Element{}, order: list.New()}
}

// repeated reports whether r says that it may be a repetition, and is one.
func (rs *receipts) repeated(r reading.Receipt) bool {
	if !r.Repeat {
		return false
	}
	e := rs.senders[r.Sender]
	return e != nil && slices.Contains(e.Value.(*sender).ids, r.ID)
}

// add remembers r, as the use-th receipt ever.
func (rs *receipts) add(r reading.Receipt, use uint64) {
	e := rs.senders[r.Sender]
	if e == nil {
		e = rs.order.PushBack(&sender{name: r.Sender})
		rs.senders[r.Sender] = e
	}
	rs.order.MoveToBack(e)
	s := e.Value.(*sender)
	s.used = use
	rs.ids += s.add(r.ID, r.Keep)
	if !s.dirty {
		s.dirty = true
		rs.dirty = append(rs.dirty, s)
	}
	for rs.order.Len() > maxSenders || rs.ids > maxReceipts {
		s := rs.order.Remove(rs.order.Front()).(*sender)
		delete(rs.senders, s.name)
		rs.ids -= len(s.ids)
		s.dirty = false // written now, it would stay on disk for ever
		rs.gone = append(rs.gone, s.name)
	}
}

// committed forgets what had to be written.
func (rs *receipts) committed() {
	for _, s := range rs.dirty {
		s.dirty = false
	}
	clear(rs.dirty)
	rs.dirty = rs.dirty[:0]
	rs.gone = rs.gone[:0]
}

// load fills an empty memory from stored forms.
func (rs *receipts) load(stored map[string][]byte) {
	var all []*sender
	for name, b := range stored {
		if len(b) < 16 || len(b)%8 != 0 || len(b)/8-1 > maxKeep {
			continue
		}
		s := &sender{name: name, used: binary.BigEndian.Uint64(b)}
		for b = b[8:]; len(b) > 0; b = b[8:] {
			s.ids = append(s.ids, binary.BigEndian.Uint64(b))
		}
		all = append(all, s)
		rs.ids += len(s.ids)
	}
	slices.SortFunc(all, func(a, b *sender) int {
		if a.used < b.used {
			return -1
		}
		return 1
	})
	for _, s := range all {
		rs.senders[s.name] = rs.order.PushBack(s)
	}
}
