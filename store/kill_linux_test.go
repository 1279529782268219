package store

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/reading"
)

// childRole in the environment makes the test binary something else.
const childRole = "SLUICE_STORE_TEST_CHILD"

func TestMain(m *testing.M) {
	if role := os.Getenv(childRole); role != "" {
		os.Exit(child(role))
	}
	os.Exit(m.Run())
}

func child(role string) int {
	switch name, path, _ := strings.Cut(role, ":"); name {
	case "append":
		return childAppend(path)
	case "fill":
		return childFill(path)
	case "drain":
		return childDrain(path)
	default:
		fmt.Fprintln(os.Stderr, "no such role:", role)
		return 2
	}
}

const killWriters = 4

// childAppend appends under load until it is killed, and reports each batch that
// became durable as eight bytes on descriptor 3: writer and number. It starts
// each writer behind what its parent says was durable.
func childAppend(path string) int {
	report := os.NewFile(3, "report")
	s, err := Open(Options{Path: path, Quota: 1 << 30, Policy: Reject, CommitInterval: 2 * time.Millisecond})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var mu sync.Mutex
	var group sync.WaitGroup
	starts := strings.Split(os.Getenv("SLUICE_STORE_TEST_STARTS"), ",")
	for w := range killWriters {
		start, err := strconv.Atoi(starts[w])
		if err != nil {
			return 2
		}
		group.Go(func() {
			window := make(chan struct{}, 50)
			for n := start; ; n++ {
				window <- struct{}{}
				b := reading.Batch{Lane: reading.Lane(w % reading.Lanes), Readings: written(w, n)}
				// What was durable but not yet reported comes again, as from a client
				// whose acknowledgement was lost.
				b.Receipt = reading.Receipt{Sender: "w" + strconv.Itoa(w), ID: uint64(n), Keep: 1000, Repeat: n < start+400}
				if err := s.Append(context.Background(), b, func(err error) {
					if err != nil {
						fmt.Fprintln(os.Stderr, err)
						os.Exit(1)
					}
					var line [8]byte
					binary.BigEndian.PutUint32(line[:], uint32(w))
					binary.BigEndian.PutUint32(line[4:], uint32(n))
					mu.Lock()
					report.Write(line[:])
					mu.Unlock()
					<-window
				}); err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
			}
		})
	}
	group.Wait()
	return 0
}

// written is batch n of writer w: one to six readings that say so.
func written(w, n int) []reading.Reading {
	rs := make([]reading.Reading, 1+n%6)
	for i := range rs {
		rs[i] = reading.Reading{Device: "w" + strconv.Itoa(w), Name: strconv.Itoa(i), Value: reading.Int(int64(n))}
	}
	return rs
}

// A process killed at any moment under load has lost nothing it acknowledged,
// doubled nothing, and kept each writer's order (F5, F6).
func TestKilledUnderLoad(t *testing.T) {
	t.Parallel()
	rounds := 50
	if testing.Short() {
		rounds = 10
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	path := filepath.Join(t.TempDir(), "queue.db")

	// What the oracle knows: how many batches of each writer were reported, and
	// how much of each lane it has taken out.
	var reported [killWriters]int
	var taken [reading.Lanes]uint64
	var seen [killWriters]int
	for round := range rounds {
		var starts []string
		for _, n := range reported {
			starts = append(starts, strconv.Itoa(n))
		}
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childRole+"=append:"+path, "SLUICE_STORE_TEST_STARTS="+strings.Join(starts, ","))
		cmd.ExtraFiles = []*os.File{w}
		var stderr strings.Builder
		cmd.Stderr = &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		w.Close()
		timer := time.AfterFunc(time.Duration(5+random.IntN(60))*time.Millisecond, func() { cmd.Process.Kill() })
		lines := bufio.NewReader(r)
		for {
			var line [8]byte
			if _, err := io.ReadFull(lines, line[:]); err != nil {
				break
			}
			w, n := binary.BigEndian.Uint32(line[:]), int(binary.BigEndian.Uint32(line[4:]))
			if n != reported[w] {
				t.Fatalf("round %d: writer %d reported %d, want %d", round, w, n, reported[w])
			}
			reported[w] = n + 1
		}
		err = cmd.Wait()
		timer.Stop()
		r.Close()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != -1 {
			t.Fatalf("round %d: %v: %s", round, err, stderr.String())
		}

		s, err := Open(Options{Path: path, Quota: 1 << 30, Policy: Reject})
		if err != nil {
			t.Fatal(err)
		}
		if st := s.Stats(); st.SetAside != "" {
			t.Fatalf("round %d: set aside: %+v", round, st)
		}
		for lane := range reading.Lane(reading.Lanes) {
			after := taken[lane]
			for {
				segs, err := s.Next(lane, after, 1<<20)
				if err != nil {
					t.Fatal(err)
				}
				if len(segs) == 0 {
					break
				}
				for _, seg := range segs {
					if seg.First != after+1 {
						t.Fatalf("round %d, lane %v: segment begins at %d, want %d", round, lane, seg.First, after+1)
					}
					rs, err := reading.DecodeBatch(seg.Data)
					if err != nil {
						t.Fatal(err)
					}
					for len(rs) > 0 {
						w, _ := strconv.Atoi(rs[0].Device[1:])
						expect := written(w, seen[w])
						if len(rs) < len(expect) || !slices.Equal(rs[:len(expect)], expect) {
							t.Fatalf("round %d: writer %d: got %v, want batch %d", round, w, rs[0], seen[w])
						}
						rs = rs[len(expect):]
						seen[w]++
					}
					after = seg.Last()
				}
			}
			taken[lane] = after
			if random.IntN(2) == 0 {
				s.Ack(lane, after)
			}
		}
		for w := range reported {
			if seen[w] < reported[w] {
				t.Fatalf("round %d: writer %d was told that %d batches are durable, %d are there", round, w, reported[w], seen[w])
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		checkFile(t, path)
	}
	t.Logf("batches per writer: %v", reported)
}
