package store

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"sluice/reading"
)

// filled makes a closed store with acknowledged, small and large values in every
// lane, and returns its file's bytes, its epoch, and each lane's undelivered
// values by sequence number.
func filled(t testing.TB, o Options) (file []byte, epoch uint64, undelivered [reading.Lanes]map[uint64]string) {
	t.Helper()
	s := open(t, o)
	epoch = s.Epoch()
	for i := range 60 {
		n := 3
		if i%5 == 0 {
			n = 600 // which takes a bucket of its own
		}
		durable := make(chan error, reading.Lanes)
		for lane := range reading.Lane(reading.Lanes) {
			b := batch(lane, 10_000*i, n)
			b.Receipt = reading.Receipt{Sender: "s", ID: uint64(i)<<8 | uint64(lane), Keep: 1000, Repeat: true}
			if err := s.Append(t.Context(), b, func(err error) { durable <- err }); err != nil {
				t.Fatal(err)
			}
		}
		for range reading.Lanes {
			if err := <-durable; err != nil {
				t.Fatal(err)
			}
		}
		if i == 20 {
			for lane := range reading.Lane(reading.Lanes) {
				_, last := drain(t, s, lane, 0)
				s.Ack(lane, last)
			}
		}
	}
	for lane := range reading.Lane(reading.Lanes) {
		undelivered[lane] = bySequence(t, s, lane)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(o.Path)
	if err != nil {
		t.Fatal(err)
	}
	return file, epoch, undelivered
}

func bySequence(t testing.TB, s *Store, lane reading.Lane) map[uint64]string {
	t.Helper()
	out := map[uint64]string{}
	var after uint64
	for {
		segs, err := s.Next(lane, after, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if len(segs) == 0 {
			return out
		}
		for _, seg := range segs {
			rs, err := reading.DecodeBatch(seg.Data)
			if err != nil {
				t.Fatal(err)
			}
			for i, r := range rs {
				out[seg.First+uint64(i)] = r.Value.Raw()
			}
			after = seg.Last()
		}
	}
}

// Files that are not whole: the store starts, keeps what can be read under the
// numbers it had, sets the file aside, says so, and goes on (F11).
func TestDamagedFile(t *testing.T) {
	t.Parallel()
	o := options(t)
	whole, epoch, undelivered := filled(t, o)
	total := 0
	for _, m := range undelivered {
		total += len(m)
	}
	rootOf := func(b []byte) int64 {
		ms, err := pageFile{bytes.NewReader(b), int64(len(b))}.metas()
		if err != nil {
			t.Fatal(err)
		}
		return int64(ms[0].root) * pageSize
	}
	older := olderMeta(whole)
	for _, test := range []struct {
		name    string
		harm    func(b []byte) []byte
		atLeast int // readings that must be kept, of every hundred
	}{
		{"first meta page", func(b []byte) []byte { clear(b[:pageSize]); return b }, 100},
		{"second meta page", func(b []byte) []byte { clear(b[pageSize : 2*pageSize]); return b }, 100},
		{"both meta pages", func(b []byte) []byte { clear(b[:2*pageSize]); return b }, 100},
		{"one bit of the newer meta page", func(b []byte) []byte { b[(1-older)*pageSize+40] ^= 4; return b }, 100},
		{"root page", func(b []byte) []byte { clear(b[rootOf(b) : rootOf(b)+pageSize]); return b }, 100},
		{"root page random", func(b []byte) []byte { scribble(b[rootOf(b):rootOf(b)+pageSize], 1); return b }, 100},
		{"type of the root page", func(b []byte) []byte { b[rootOf(b)+8] = 0x10; return b }, 100},
		{"a letter of a bucket's name", func(b []byte) []byte {
			root := b[rootOf(b) : rootOf(b)+pageSize]
			root[bytes.Index(root, bucketReceipts)+7] = 'z'
			return b
		}, 100},
		{"half", func(b []byte) []byte { return b[:len(b)/2] }, 1},
		{"all but the last page", func(b []byte) []byte { return b[:int64(highWater(t, b)-1)*pageSize] }, 50},
		{"empty", func(b []byte) []byte { return nil }, 0},
		{"one byte", func(b []byte) []byte { return b[:1] }, 0},
		{"zeroes", func(b []byte) []byte { clear(b); return b }, 0},
		{"another format", func(b []byte) []byte { copy(b, "SQLite format 3\x00"); clear(b[16:]); return b }, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := o
			o.Path = filepath.Join(t.TempDir(), "queue.db")
			o.Now = func() int64 { return time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC).UnixNano() }
			if err := os.WriteFile(o.Path, test.harm(slices.Clone(whole)), 0o600); err != nil {
				t.Fatal(err)
			}
			s := open(t, o)
			st := s.Stats()
			if st.SetAside != o.Path+".damaged-20260504T030201Z" || st.Cause == "" || !exists(st.SetAside) {
				t.Errorf("set aside %q because of %q", st.SetAside, st.Cause)
			}
			kept := 0
			for lane := range reading.Lane(reading.Lanes) {
				for seq, v := range bySequence(t, s, lane) {
					if undelivered[lane][seq] != v {
						t.Fatalf("lane %v, %d: got %q, want %q", lane, seq, v, undelivered[lane][seq])
					}
					kept++
				}
			}
			if st.Salvaged != uint64(kept) || kept*100 < total*test.atLeast {
				t.Errorf("%d readings kept, %d reported, of %d", kept, st.Salvaged, total)
			}
			if kept > 0 && st.Epoch != epoch {
				t.Errorf("epoch %x, want %x", st.Epoch, epoch)
			}
			// New readings get numbers that none before can have had.
			mustPut(t, s, batch(reading.Live, 7, 1))
			if next := s.Stats().Lanes[reading.Live].Next; kept > 0 && next < salvageStep {
				t.Errorf("next number %d", next)
			}
			got, _ := drain(t, s, reading.Live, 0)
			if len(got) == 0 || got[len(got)-1] != "7" {
				t.Error("the new reading is not the last")
			}
			// A second start finds a whole file.
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, o)
			if st := s.Stats(); st.Cause != "" || st.SetAside == "" {
				t.Errorf("second start: %q, %q", st.SetAside, st.Cause)
			}
		})
	}
}

// olderMeta is the number of the meta page that is not the newest.
func olderMeta(b []byte) int {
	ms, _ := pageFile{bytes.NewReader(b), int64(len(b))}.metas()
	return int(1 - ms[0].txid%2)
}

func highWater(t testing.TB, b []byte) uint64 {
	ms, err := pageFile{bytes.NewReader(b), int64(len(b))}.metas()
	if err != nil {
		t.Fatal(err)
	}
	return ms[0].pages
}

func scribble(b []byte, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
}

// Receipts outlive a damaged page elsewhere, so that a retried push is not
// doubled.
func TestReceiptsOutliveDamage(t *testing.T) {
	t.Parallel()
	o := options(t)
	whole, _, _ := filled(t, o)
	older := olderMeta(whole)
	clear(whole[older*pageSize:][:pageSize])
	if err := os.WriteFile(o.Path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, o)
	b := batch(reading.Live, 0, 3)
	b.Receipt = reading.Receipt{Sender: "s", ID: 59<<8 | 1, Keep: 1000, Repeat: true}
	mustPut(t, s, b)
	if st := s.Stats(); st.Duplicates != 1 {
		t.Errorf("%d duplicates, want 1", st.Duplicates)
	}
}

// Bytes overwritten at random places, many times: the store always starts
// and serves only values that were stored (F11, F12).
func TestRandomDamage(t *testing.T) {
	t.Parallel()
	o := options(t)
	whole, _, undelivered := filled(t, o)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	rounds := 20
	if testing.Short() {
		rounds = 10
	}
	used := int(highWater(t, whole)) * pageSize
	whole = whole[:used]
	o.Path = filepath.Join(t.TempDir(), "queue.db")
	for round := range rounds {
		b := slices.Clone(whole)
		for range 1 + random.IntN(20) {
			at, n := random.IntN(used), 1+random.IntN(64)
			if random.IntN(2) == 0 {
				at = at / pageSize * pageSize // headers are where it hurts
			}
			scribble(b[at:min(at+n, used)], random.Uint64())
		}
		if err := os.WriteFile(o.Path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(o)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for lane := range reading.Lane(reading.Lanes) {
			for seq, v := range bySequence(t, s, lane) {
				if undelivered[lane][seq] != v {
					t.Fatalf("round %d, lane %v, %d: got %q, want %q", round, lane, seq, v, undelivered[lane][seq])
				}
			}
		}
		mustPut(t, s, batch(reading.Live, 1, 1))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		checkFile(t, o.Path)
	}
	if n := len(setAsideFiles(o.Path)); n > keptFiles {
		t.Errorf("%d damaged files kept, want at most %d", n, keptFiles)
	}
}

// Set aside while the clock has not been set, a file is still the newest.
func TestSetAsideAtFirstOfJanuary1970(t *testing.T) {
	o := options(t)
	o.Now = func() int64 { return 0 }
	for i := range keptFiles {
		if err := os.WriteFile(fmt.Sprintf("%s.damaged-2026010%dT000000Z", o.Path, i+1), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(o.Path, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, o)
	st := s.Stats()
	if b, err := os.ReadFile(st.SetAside); err != nil || string(b) != "damaged" {
		t.Errorf("%q is set aside, %q in it, %v", st.SetAside, b, err)
	}
	if n := len(setAsideFiles(o.Path)); n != keptFiles {
		t.Errorf("%d files kept, want %d", n, keptFiles)
	}
}

// A directory where the file should be is moved out of the way.
func TestDirectoryInPlaceOfFile(t *testing.T) {
	o := options(t)
	if err := os.MkdirAll(filepath.Join(o.Path, "inside"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := open(t, o)
	mustPut(t, s, batch(reading.Live, 0, 1))
	if st := s.Stats(); !exists(filepath.Join(st.SetAside, "inside")) {
		t.Errorf("set aside: %q", st.SetAside)
	}
}

// A crash while the first file was made leaves a part of it, which is no store.
func TestHalfMadeFileIsIgnored(t *testing.T) {
	o := options(t)
	if err := os.WriteFile(o.Path+".new", make([]byte, 5000), 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, o)
	mustPut(t, s, batch(reading.Live, 0, 1))
	if st := s.Stats(); st.SetAside != "" {
		t.Errorf("set aside: %q", st.SetAside)
	}
}

// A file of a later format is left alone.
func TestUnknownFormatIsRefused(t *testing.T) {
	o := options(t)
	open(t, o).Close()
	db, err := bbolt.Open(o.Path, 0o600, &bbolt.Options{NoFreelistSync: true})
	if err != nil {
		t.Fatal(err)
	}
	st := newState()
	b := st.encode()
	binary.BigEndian.PutUint32(b[4:], 99)
	binary.BigEndian.PutUint32(b, crc32.Checksum(b[4:], castagnoli))
	if err := db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(bucketMeta).Put(keyState, b) }); err != nil {
		t.Fatal(err)
	}
	db.Close()
	if _, err := Open(o); err == nil || !strings.Contains(err.Error(), "format 99") {
		t.Errorf("got %v", err)
	}
	// The checks at the end of the test want a store that they know.
	os.Remove(o.Path)
	open(t, o)
}

// Bits flipped in stored values, small and large, at rest and under a running
// store: those batches are set aside and counted, the rest flows (F12).
func TestFlippedBitInValue(t *testing.T) {
	t.Parallel()
	o := options(t)
	whole, epoch, undelivered := filled(t, o)
	f := find(pageFile{bytes.NewReader(whole), int64(len(whole))})
	lost := map[segmentKey]int{}
	gone := 0
	for i, p := range f.pieces {
		if i%7 == 3 {
			whole[p.off+int64(p.size)-1] ^= 0x10
			lost[segmentKey{p.lane, p.first}] = p.count
			gone += p.count
		}
	}
	if err := os.WriteFile(o.Path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Export(o.Path, io.Discard); !errors.Is(err, errDamaged) {
		t.Errorf("export: %v", err)
	}
	s := open(t, o)
	total, kept := 0, 0
	for lane := range reading.Lane(reading.Lanes) {
		total += len(undelivered[lane])
		got := bySequence(t, s, lane)
		kept += len(got)
		for seq, v := range got {
			if undelivered[lane][seq] != v {
				t.Fatalf("lane %v, %d: got %q", lane, seq, v)
			}
		}
	}
	if kept != total-gone {
		t.Errorf("%d readings left, want %d less %d", kept, total, gone)
	}
	mustPut(t, s, batch(reading.Alarm, 1, 1)) // behind the commit that sets aside
	st := s.Stats()
	if st.Damaged != uint64(gone) || st.SetAside != "" || st.Epoch != epoch {
		t.Errorf("%d counted as damaged, want %d; %q set aside", st.Damaged, gone, st.SetAside)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := Check(o.Path)
	if err != nil || r.SetAside != len(lost) {
		t.Errorf("%d values set aside, %v, want %d", r.SetAside, err, len(lost))
	}
}

// Pages overwritten under a running store: it rebuilds its file and goes on,
// under the same epoch and without jumping ahead.
func TestDamageWhileRunning(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"next", "append"} {
		t.Run(how, func(t *testing.T) {
			o := options(t)
			_, epoch, undelivered := filled(t, o)
			s := open(t, o)
			mustPut(t, s, batch(reading.Live, 5, 1))
			next := s.Stats().Lanes[reading.Live].Next
			b, err := os.ReadFile(o.Path)
			if err != nil {
				t.Fatal(err)
			}
			ms, _ := pageFile{bytes.NewReader(b), int64(len(b))}.metas()
			f, err := os.OpenFile(o.Path, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			// The root's elements now point far outside of the file.
			junk := bytes.Repeat([]byte{0xff}, pageSize-pageHeader)
			if _, err := f.WriteAt(junk, int64(ms[0].root)*pageSize+pageHeader); err != nil {
				t.Fatal(err)
			}
			if how == "append" {
				mustPut(t, s, batch(reading.Live, 6, 1))
				next++
			}
			kept := bySequence(t, s, reading.Live)
			for seq, v := range undelivered[reading.Live] {
				if kept[seq] != v {
					t.Fatalf("%d: got %q, want %q", seq, kept[seq], v)
				}
			}
			st := s.Stats()
			if st.SetAside == "" || st.Epoch != epoch || st.Lanes[reading.Live].Next != next {
				t.Errorf("%+v, want next number %d", st, next)
			}
			mustPut(t, s, batch(reading.Live, 8, 1))
			if got, _ := drain(t, s, reading.Live, next-1); len(got) != 1 || got[0] != "8" {
				t.Errorf("got %v behind %d", got, next-1)
			}
		})
	}
}

// A commit that meets an I/O error is rolled back, and may be tried again; if the
// file is damaged as well, that is what the error says, and the process lives.
func TestFailedCommitOnDamagedFile(t *testing.T) {
	o := options(t)
	whole, _, _ := filled(t, o)
	o.Path = filepath.Join(t.TempDir(), "queue.db")
	if err := os.WriteFile(o.Path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := openWith(o.Path, &bbolt.Options{OpenFile: func(name string, _ int, mode os.FileMode) (*os.File, error) {
		return os.OpenFile(name, os.O_RDONLY, mode)
	}})
	if err != nil {
		t.Fatal(err)
	}
	write := func(tx *bbolt.Tx) error { return tx.Bucket(bucketMeta).Put([]byte("k"), []byte("v")) }
	for range 2 {
		if _, err := db.update(write); err == nil || errors.Is(err, errDamaged) {
			t.Fatalf("a file that cannot be written: %v", err)
		}
	}
	// A page of the live lane, at which the commit itself does not look, loses its
	// number.
	pages := pageFile{bytes.NewReader(whole), int64(len(whole))}
	ms, err := pages.metas()
	if err != nil {
		t.Fatal(err)
	}
	var page int64
	w := newWalk(pages, ms[0])
	w.leaf = func(path []string, el element) {
		if len(path) == 1 && path[0] == "live" {
			page = el.off / pageSize * pageSize
		}
	}
	w.page(nil, ms[0].root, nil, nil, 0)
	f, err := os.OpenFile(o.Path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(bytes.Repeat([]byte{0xff}, 8), page); err != nil {
		t.Fatal(err)
	}
	if _, err := db.update(write); !errors.Is(err, errDamaged) {
		t.Errorf("a damaged file that cannot be written: %v", err)
	}
}

// Export writes every reading with its digits; Check and Stat agree with it.
func TestExport(t *testing.T) {
	o := options(t)
	s := open(t, o)
	number, err := reading.Number("1.50e3")
	if err != nil {
		t.Fatal(err)
	}
	values := []reading.Value{
		{}, reading.Bool(false), reading.Bool(true), number, reading.Int(2882429806056571124),
		reading.Text("<open>"), reading.Bytes([]byte{0xff, 0}),
	}
	var rs []reading.Reading
	for _, v := range values {
		rs = append(rs, reading.Reading{Device: "d", Name: "n", Unit: "Cel", Value: v, Flags: reading.FlagRetained})
	}
	mustPut(t, s, reading.Batch{Lane: reading.Live, Readings: rs})
	s.Close()
	var out bytes.Buffer
	if err := Export(o.Path, &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for i, part := range []string{
		`"value":null`, `"value":false`, `"value":true`, `"value":1.50e3`, `"value":2882429806056571124`, `"value":"<open>"`, `"bytes":"_wA"`,
	} {
		var line map[string]any
		if err := json.Unmarshal([]byte(lines[i]), &line); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(lines[i], part) || line["seq"] != float64(i+1) || line["lane"] != "live" {
			t.Errorf("got %s, want %s", lines[i], part)
		}
	}
	if r, err := Check(o.Path); err != nil || r.Lanes[reading.Live].Readings != 7 || r.Lanes[reading.Live].Last != 7 {
		t.Errorf("check: %+v, %v", r, err)
	}
	if st, err := Stat(o.Path); err != nil || st.Lanes[reading.Live].Readings != 7 || st.Lanes[reading.Live].Next != 8 {
		t.Errorf("stat: %+v, %v", st, err)
	}
}

// A file without its tree is exported from its pages.
func TestExportDamaged(t *testing.T) {
	t.Parallel()
	o := options(t)
	whole, _, undelivered := filled(t, o)
	clear(whole[:2*pageSize])
	damaged := filepath.Join(t.TempDir(), "damaged")
	if err := os.WriteFile(damaged, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Export(damaged, &out); !errors.Is(err, errDamaged) {
		t.Errorf("got %v", err)
	}
	total := 0
	for _, m := range undelivered {
		total += len(m)
	}
	if n := bytes.Count(out.Bytes(), []byte("\n")); n != total {
		t.Errorf("%d lines, want %d", n, total)
	}
}
