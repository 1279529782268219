package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/reading"
)

// smallDisk mounts a file system of a few megabytes.
func smallDisk(t *testing.T, size int) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		t.Fatalf("mount a small tmpfs: %v: run this test as root, or in a user namespace: unshare -rm go test", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

// The disk fills up below the quota: storing pauses and says why, senders are
// told to wait, the uplink can still drain, and when there is space again storing
// goes on by itself with what waited, once and in order (F9).
func TestDiskFull(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t, 12<<20)
	o := options(t)
	o.Path = filepath.Join(dir, "queue.db")
	s := open(t, o)
	hog := filepath.Join(dir, "hog")
	if err := os.WriteFile(hog, make([]byte, 5<<20), 0o600); err != nil {
		t.Fatal(err)
	}

	results := make(chan error, 10_000)
	sent := 0
	for busy := error(nil); busy == nil || s.Stats().Paused == ""; {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		busy = s.Append(ctx, bulky(reading.Live, fmt.Sprintf("%d.", sent), 50_000), func(err error) { results <- err })
		cancel()
		if busy == nil {
			sent++
		} else if !errors.Is(busy, ErrBusy) {
			t.Fatalf("got %v, want ErrBusy", busy)
		}
	}
	st := s.Stats()
	if !strings.Contains(st.Paused, "disk full") || !strings.Contains(st.Paused, "free space") {
		t.Errorf("paused: %q", st.Paused)
	}
	stored := len(results)
	if stored == 0 || stored == sent {
		t.Fatalf("%d of %d stored", stored, sent)
	}
	// The uplink delivers half: that space is used at once, no byte was freed on
	// the disk.
	got, _ := drain(t, s, reading.Live, 0)
	if len(got) < stored {
		t.Fatalf("%d readings, %d acknowledged to their senders", len(got), stored)
	}
	s.Ack(reading.Live, uint64(stored/2))
	wait(t, results, stored/2+10)

	if err := os.Remove(hog); err != nil {
		t.Fatal(err)
	}
	wait(t, results, sent)
	for range sent {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	mustPut(t, s, bulky(reading.Live, "last.", 10))
	if st := s.Stats(); st.Paused != "" || st.SetAside != "" {
		t.Errorf("%+v", st)
	}
	values := bySequence(t, s, reading.Live)
	got = nil
	for i := stored / 2; i <= sent; i++ {
		got = append(got, values[uint64(i+1)])
	}
	var expect []string
	for i := stored / 2; i < sent; i++ {
		expect = append(expect, fmt.Sprintf("%d.", i))
	}
	equal(t, "live", marks(got), append(expect, "last."))
}

// With drop-oldest a full disk is a limit like the quota: the oldest readings
// make way for new ones, counted, alarms last, and nothing waits for the link.
func TestDropOldestOnFullDisk(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t, 12<<20)
	o := options(t)
	o.Path = filepath.Join(dir, "queue.db")
	o.Policy = DropOldest
	s := open(t, o)
	mustPut(t, s, bulky(reading.Alarm, "alarm", 50_000))
	const sent = 300 // 15 MB
	for i := range sent {
		mustPut(t, s, bulky(reading.Live, fmt.Sprintf("%d.", i), 50_000+i*10))
	}
	alarms, _ := drain(t, s, reading.Alarm, 0)
	live, _ := drain(t, s, reading.Live, 0)
	if len(alarms) != 1 || len(live) < 100 {
		t.Fatalf("%d alarms and %d live readings left", len(alarms), len(live))
	}
	var expect []string
	for i := sent - len(live); i < sent; i++ {
		expect = append(expect, fmt.Sprintf("%d.", i))
	}
	equal(t, "live", marks(live), expect)
	if st := s.Stats(); st.Lanes[reading.Live].Removed != uint64(sent-len(live)) || st.Paused != "" || st.SetAside != "" {
		t.Errorf("%+v", st)
	}
}

// wait waits until n results are there.
func wait(t *testing.T, results chan error, n int) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for len(results) < n {
		select {
		case <-deadline:
			t.Fatalf("%d results within 20 s, want %d", len(results), n)
		case <-tick.C:
		}
	}
}

// A store on a full disk opens, can be read, and refuses what it could not store
// when it closes.
func TestOpenOnFullDisk(t *testing.T) {
	dir := smallDisk(t, 8<<20)
	o := options(t)
	o.Path = filepath.Join(dir, "queue.db")
	s := open(t, o)
	mustPut(t, s, bulky(reading.Live, "a", 100_000))
	s.Close()
	os.Remove(o.Path + ".reserve")
	hog, err := os.Create(filepath.Join(dir, "hog"))
	if err != nil {
		t.Fatal(err)
	}
	defer hog.Close()
	for err == nil {
		_, err = hog.Write(make([]byte, 64<<10))
	}
	if !diskFull(err) {
		t.Fatal(err)
	}
	s = open(t, o)
	if got, _ := drain(t, s, reading.Live, 0); len(got) != 1 {
		t.Errorf("%d readings, want 1", len(got))
	}
	result := make(chan error, 1)
	if err := s.Append(t.Context(), bulky(reading.Live, "b", 3_000_000), func(err error) { result <- err }); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if err := <-result; !errors.Is(err, ErrClosed) || !diskFull(err) {
		t.Errorf("got %v", err)
	}
}

// A damaged file is rebuilt on a disk that older damaged ones fill: they go
// first, what can still be delivered does not.
func TestRebuildOnFullDisk(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t, 24<<20)
	o := options(t)
	o.Path = filepath.Join(dir, "queue.db")
	s := open(t, o)
	const sent = 80 // 8 MB
	for i := range sent {
		mustPut(t, s, bulky(reading.Live, fmt.Sprintf("%d.", i), 100_000))
	}
	s.Close()
	old := o.Path + ".damaged-19700101T000000Z"
	if err := os.WriteFile(old, make([]byte, 9<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(o.Path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(make([]byte, 2*pageSize), 0); err != nil {
		t.Fatal(err)
	}
	s = open(t, o)
	if got, _ := drain(t, s, reading.Live, 0); len(got) != sent {
		t.Errorf("%d readings kept, want %d", len(got), sent)
	}
	if st := s.Stats(); !exists(st.SetAside) || exists(old) {
		t.Errorf("%+v", st)
	}
}
