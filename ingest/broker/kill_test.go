package broker

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"sluice/reading"
)

const (
	killEnv    = "SLUICE_BROKER_KILL_FILE"
	killRounds = 12
)

// fileSink commits groups of values to a file, with a sync each.
type fileSink struct {
	file *os.File
	wake chan struct{}

	mu      sync.Mutex
	pending []groupItem
}

func (s *fileSink) Append(_ context.Context, b reading.Batch, done func(error)) error {
	s.mu.Lock()
	s.pending = append(s.pending, groupItem{b, done})
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return nil
}

func (s *fileSink) run() {
	out := bufio.NewWriter(s.file)
	for range s.wake {
		s.mu.Lock()
		items := s.pending
		s.pending = nil
		s.mu.Unlock()
		for _, it := range items {
			for _, r := range it.batch.Readings {
				fmt.Fprintln(out, r.Value.Raw())
			}
		}
		err := out.Flush()
		if err == nil {
			err = s.file.Sync()
		}
		for _, it := range items {
			it.done(err)
		}
	}
}

// TestKillChild is the process that TestKillBetweenPublishAndCommit kills.
func TestKillChild(t *testing.T) {
	path := os.Getenv(killEnv)
	if path == "" {
		return // run by itself it has nothing to do
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	sink := &fileSink{file: f, wake: make(chan struct{}, 1)}
	go sink.run()
	b, err := New(Options{
		Listeners: []Listener{{Address: "127.0.0.1:0"}},
		Anonymous: Rights{Publish: []string{"#"}},
		Sink:      sink, Decoder: textDecoder{},
		Now:    func() reading.Time { return reading.Time{Wall: time.Now().UnixNano()} },
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(b.Addrs()[0])
	// The parent's death ends the child too.
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	_ = b.Serve(context.Background())
}

// Promise 1, F5: the process is killed at random moments under load, so between
// PUBLISH and commit as well; whatever was acknowledged is on disk.
func TestKillBetweenPublishAndCommit(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	total, unacknowledged := 0, 0
	for round := range killRounds {
		path := filepath.Join(t.TempDir(), "stored")
		child := exec.Command(os.Args[0], "-test.run=^TestKillChild$")
		child.Env = append(os.Environ(), killEnv+"="+path)
		stdin, err := child.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		defer stdin.Close()
		stdout, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		var addr string
		if _, err := fmt.Fscanln(stdout, &addr); err != nil {
			t.Fatalf("child: %v", err)
		}
		tcp, err := net.ResolveTCPAddr("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		qos, kind := byte(1), packets.Puback
		if round%2 == 1 {
			qos, kind = 2, packets.Pubrec
		}
		c := dialRaw(t, tcp, 4, "sensor")

		// Publishes stream in while acknowledgements are read; the kill comes
		// after a random number of acknowledgements.
		sent := make(chan int, 1)
		go func() {
			n := 0
			for ; n < 60000; n++ {
				c.conn.SetWriteDeadline(time.Now().Add(10 * time.Second))
				if _, err := c.conn.Write(encodePacket(t, 4, publish(uint16(n+1), qos, "t", fmt.Sprint(n)))); err != nil {
					break
				}
			}
			sent <- n
		}()
		killAfter := 1 + random.IntN(3000)
		acked := 0
		for {
			pk, err := c.read(10 * time.Second)
			if err != nil {
				break
			}
			if pk.FixedHeader.Type != kind || pk.PacketID != uint16(acked+1) {
				t.Fatalf("got %s %d, want %s %d", packets.PacketNames[pk.FixedHeader.Type], pk.PacketID,
					packets.PacketNames[kind], acked+1)
			}
			if acked++; acked == killAfter {
				if err := child.Process.Signal(syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = child.Wait()
		published := <-sent

		stored, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for lines := bufio.NewScanner(stored); n < acked && lines.Scan(); n++ {
			if lines.Text() != fmt.Sprint(n) {
				t.Fatalf("stored line %d: got %q", n, lines.Text())
			}
		}
		stored.Close()
		if acked < killAfter || n < acked {
			t.Fatalf("round %d: %d acknowledged (killed after %d), only %d stored", round, acked, killAfter, n)
		}
		total, unacknowledged = total+acked, unacknowledged+published-acked
	}
	t.Logf("%d acknowledged publishes, all stored; %d were sent without an acknowledgement", total, unacknowledged)
	if unacknowledged == 0 {
		t.Error("no kill came between a PUBLISH and its commit")
	}
}
