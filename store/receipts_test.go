package store

import (
	"fmt"
	"strings"
	"testing"

	"sluice/reading"
)

// A sender's memory holds its last deliveries, also while its size changes.
func TestReceiptsRemember(t *testing.T) {
	rs := newReceipts()
	var id, use uint64
	var last []uint64
	for _, keep := range []int{1, 5, 5, 5, 3, 8, 2, 100} {
		for range 17 {
			id++
			use++
			rs.add(reading.Receipt{Sender: "s", ID: id, Keep: keep}, use)
			last = append(last, id)
			last = last[max(0, len(last)-keep):]
			for back := uint64(0); back < min(id, 120); back++ {
				r := reading.Receipt{Sender: "s", ID: id - back, Keep: keep, Repeat: true}
				if got, want := rs.repeated(r), back < uint64(len(last)); got != want {
					t.Fatalf("keep %d, %d back of %d: got %v, want %v", keep, back, id, got, want)
				}
			}
			if rs.ids != len(last) {
				t.Fatalf("keep %d: %d counted, want %d", keep, rs.ids, len(last))
			}
		}
	}
	again := newReceipts()
	again.load(map[string][]byte{"s": rs.senders["s"].Value.(*sender).encode(nil), "torn": {1, 2, 3}})
	for _, id := range last {
		if !again.repeated(reading.Receipt{Sender: "s", ID: id, Repeat: true}) {
			t.Errorf("%d forgotten", id)
		}
	}
	if again.repeated(reading.Receipt{Sender: "s", ID: last[0]}) {
		t.Error("consulted without being asked to")
	}
}

// Beyond the limit the sender that was silent the longest is forgotten.
func TestReceiptsForgetTheSilent(t *testing.T) {
	rs := newReceipts()
	for i := range maxSenders + 10 {
		rs.add(reading.Receipt{Sender: fmt.Sprint(i), ID: 1, Keep: 1}, uint64(2*i))
		rs.add(reading.Receipt{Sender: "0", ID: 1, Keep: 1}, uint64(2*i+1))
	}
	if len(rs.senders) != maxSenders || rs.ids != maxSenders {
		t.Errorf("%d senders, %d receipts, want %d", len(rs.senders), rs.ids, maxSenders)
	}
	for name, want := range map[string]bool{"0": true, "1": false, "10": false, "11": true} {
		if got := rs.repeated(reading.Receipt{Sender: name, ID: 1, Repeat: true}); got != want {
			t.Errorf("sender %s remembered: got %v, want %v", name, got, want)
		}
	}
	if len(rs.gone) != 10 {
		t.Errorf("%d to be removed, want 10", len(rs.gone))
	}
}

func TestReceiptsAreChecked(t *testing.T) {
	s := open(t, options(t))
	for _, r := range []reading.Receipt{
		{Sender: "s", Keep: maxKeep + 1},
		{Sender: "s", Keep: -1},
	} {
		b := batch(reading.Live, 0, 1)
		b.Receipt = r
		if err := s.Append(t.Context(), b, nil); err == nil {
			t.Errorf("%.20q, keep %d: accepted", r.Sender, r.Keep)
		}
	}
}

// A sender with a long name is remembered as any other, and apart from others.
func TestReceiptsOfALongName(t *testing.T) {
	s := open(t, options(t))
	long := strings.Repeat("s", 64<<10)
	for i, sender := range []string{long, long, long + "s"} {
		b := batch(reading.Live, i, 1)
		b.Receipt = reading.Receipt{Sender: sender, ID: 1, Keep: 1, Repeat: true}
		done := make(chan error, 1)
		if err := s.Append(t.Context(), b, func(err error) { done <- err }); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if got := s.Stats(); got.Appended != 2 || got.Duplicates != 1 {
		t.Errorf("%d kept and %d duplicates, want 2 and 1", got.Appended, got.Duplicates)
	}
}

// A sender that came and was forgotten within one group leaves nothing on disk.
func TestReceiptsForgottenInTheirGroup(t *testing.T) {
	rs := newReceipts()
	st := newState()
	opt := options(t)
	if err := opt.complete(); err != nil {
		t.Fatal(err)
	}
	var es []entry
	for i := range maxSenders + 10 {
		es = append(es, entry{ctx: t.Context(), Batch: reading.Batch{Receipt: reading.Receipt{Sender: fmt.Sprint(i), ID: 1, Keep: 1}}})
	}
	var pl planner
	p := pl.prepare(es, &st, rs, &opt, 1<<30, 1<<30)
	if len(p.receipts) != maxSenders || p.receipts[0].sender != "10" {
		t.Errorf("%d senders to be stored from %q on, want %d from 10 on", len(p.receipts), p.receipts[0].sender, maxSenders)
	}
}
