package store

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"sluice/reading"
)

// resident is the most memory the process has had, in bytes, mapped files
// included.
func resident() (int64, error) {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "VmHWM:"); ok {
			kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("no VmHWM in /proc/self/status")
}

// childFill fills a store with two million readings of many devices.
func childFill(path string) int {
	s, err := Open(Options{Path: path, Quota: 1 << 30, Policy: Reject})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	const batches = 2_000_000 / 6
	failed := make(chan error, 1)
	random := rand.NewChaCha8([32]byte{})
	var noise [200]byte
	for n := range batches {
		b := reading.Batch{Lane: reading.Backfill, Readings: sensor(n%500, n)}
		// Something that does not compress, so that the file is larger than what
		// the process may take.
		random.Read(noise[:])
		b.Readings[5].Value = reading.Bytes(noise[:])
		if err := s.Append(context.Background(), b, func(err error) {
			if err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	err = s.Close()
	select {
	case err = <-failed:
	default:
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// childDrain opens a store, delivers all of it and prints how many readings that
// were and its largest resident memory meanwhile.
func childDrain(path string) int {
	s, err := Open(Options{Path: path, Quota: 1 << 30, Policy: Reject})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var after, n uint64
	for {
		segs, err := s.Next(reading.Backfill, after, 256<<10)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if len(segs) == 0 {
			break
		}
		for _, seg := range segs {
			n += uint64(seg.Count)
			after = seg.Last()
		}
		s.Ack(reading.Backfill, after)
	}
	if err := s.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	rss, err := resident()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(n, rss)
	return 0
}

// A backlog of two million readings is opened and drained in little memory: the
// file is mapped, and what is mapped and read counts (F10, F36). A gateway has 64
// MB for all it does.
func TestMemoryDoesNotFollowTheBacklog(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "queue.db")
	run := func(role string) string {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childRole+"="+role+":"+path)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	run("fill")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	var n, rss int64
	if _, err := fmt.Sscan(run("drain"), &n, &rss); err != nil {
		t.Fatal(err)
	}
	if n != 2_000_000/6*6 {
		t.Errorf("%d readings delivered, want %d", n, 2_000_000/6*6)
	}
	t.Logf("file %d MB, resident at most %d MB", info.Size()>>20, rss>>20)
	if limit := int64(64 << 20); rss > limit {
		t.Errorf("resident memory reached %d MB, want at most %d", rss>>20, limit>>20)
	}
	checkFile(t, path)
}
