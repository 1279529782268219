package jetstream

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"sluice/collector"
	"sluice/collector/outputtest"
)

// childDir, in the environment, makes the test program a collector's output
// that writes to this folder until it is killed.
const childDir = "SLUICE_TEST_JETSTREAM_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if err := writeForEver(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// writeForEver writes packs of 1 to 300 readings and says after each how far it
// has come.
func writeForEver(dir string) error {
	ctx := context.Background()
	o, err := Open(ctx, Options{Server: &Server{Dir: dir}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	last, err := o.Last(ctx, live)
	if err != nil {
		return err
	}
	for n := 1; ; n = n%300 + 1 {
		if err := o.Write(ctx, live, last, []collector.Delivery{outputtest.Readings(last+1, n)}); err != nil {
			return err
		}
		last += uint64(n)
		fmt.Println(last)
	}
}

// F5: the process is killed at a random moment while it publishes. All that it
// had acknowledged is there afterwards, once, and Last agrees with the stream.
func TestKill(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	for range 5 {
		acknowledged := killAfter(t, dir, 1+random.IntN(200))
		o := open(t, dir)
		last, err := o.Last(outputtest.Context(t), live)
		if err != nil {
			t.Fatal(err)
		}
		if last < acknowledged {
			t.Fatalf("last: got %d, acknowledged %d", last, acknowledged)
		}
		got := read(t, Cluster{URLs: []string{"nats://" + o.Address()}}, live)
		next := uint64(1)
		for _, d := range got {
			if d.First != next {
				t.Fatalf("got readings from %d, want from %d", d.First, next)
			}
			next = d.Last() + 1
		}
		if next-1 != last {
			t.Fatalf("the stream holds readings to %d, last says %d", next-1, last)
		}
		o.Close()
	}
}

// killAfter runs a child that writes to dir, kills it once it has said n times
// how far it is, and returns the last that it said.
func killAfter(t *testing.T, dir string, n int) (last uint64) {
	t.Helper()
	child := exec.CommandContext(outputtest.Context(t), os.Args[0])
	child.Env = append(os.Environ(), childDir+"="+dir)
	child.Stderr = os.Stderr
	said, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer child.Wait()
	lines := bufio.NewScanner(said)
	for i := 0; lines.Scan(); i++ {
		if last, err = strconv.ParseUint(lines.Text(), 10, 64); err != nil {
			t.Fatal(err)
		}
		if i == n {
			child.Process.Kill() // what is still in the pipe is read as well
		}
	}
	return last
}
