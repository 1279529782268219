package store

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"sluice/reading"
)

func FuzzOpenValue(f *testing.F) {
	b := reading.AppendBatch(appendHeader(nil), numbered(0, 3))
	seal(b, value{lane: reading.Live, count: 3, first: 9, stored: 1, epoch: 2, acked: 3})
	f.Add(b)
	f.Add(b[:valueHeader])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := openValue(b)
		if err != nil {
			return
		}
		again := append(appendHeader(nil), v.data...)
		seal(again, v)
		if !bytes.Equal(again, b) {
			t.Errorf("%x became %x", b, again)
		}
	})
}

func FuzzDecodeState(f *testing.F) {
	s := newState()
	f.Add(s.encode())
	f.Add([]byte("state"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := decodeState(b); err == nil && !bytes.Equal(s.encode(), b) {
			t.Errorf("%x became %x", b, s.encode())
		}
	})
}

// FuzzPages overwrites a small store's file at one place. Whatever that is, the
// walk ends, and a file that it calls whole is one that bbolt can open and check.
func FuzzPages(f *testing.F) {
	path := filepath.Join(f.TempDir(), "seed.db")
	s, err := Open(Options{Path: path, Quota: MinQuota, Policy: Reject})
	if err != nil {
		f.Fatal(err)
	}
	for i := range 40 {
		mustPut(f, s, batch(reading.Alarm, 100*i, 1+i*20))
	}
	if err := s.Close(); err != nil {
		f.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	whole = whole[:highWater(f, whole)*pageSize]
	ms, err := pageFile{bytes.NewReader(whole), int64(len(whole))}.metas()
	if err != nil {
		f.Fatal(err)
	}
	root := uint32(ms[0].root) * pageSize
	f.Add(uint32(0), []byte{})
	f.Add(uint32(5), []byte("0000"))
	f.Add(root, []byte{0xff})
	f.Add(root+8, []byte{0x02, 0, 0xff, 0xff, 0xff, 0xff})
	f.Add(root+16, bytes.Repeat([]byte{0xff}, 64))
	f.Add(root+20, []byte{0, 0, 0, 0x7f})
	f.Fuzz(func(t *testing.T, at uint32, patch []byte) {
		b := bytes.Clone(whole)
		copy(b[int(at)%len(b):], patch)
		f := pageFile{bytes.NewReader(b), int64(len(b))}
		found := find(f)
		for _, p := range found.pieces {
			if _, err := found.readings(p); err != nil {
				t.Errorf("%+v: %v", p, err)
			}
		}
		if _, _, err := f.survey(); err != nil || bytes.Equal(b, whole) {
			return
		}
		path := filepath.Join(t.TempDir(), "queue.db")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoFreelistSync: true, FreelistType: bbolt.FreelistMapType})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if err := db.View(func(tx *bbolt.Tx) error {
			for err := range tx.Check() {
				t.Error(err)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	})
}
