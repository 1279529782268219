package carriertest_test

import (
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"sluice/uplink"
	"sluice/uplink/carriertest"
)

func TestPipe(t *testing.T) {
	// A rate, or a write that nobody reads would never block.
	link := carriertest.Link{Rate: 64 << 20, Delay: time.Millisecond}
	carriertest.Suite(t, func(t *testing.T) (near, far uplink.Carrier, nearPeer, farPeer string) {
		a, b := carriertest.Pipe(link, "collector", "gw-1")
		return a, b, "collector", "gw-1"
	})
}

func TestPipeTakesTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := carriertest.Pipe(carriertest.Link{Rate: 1000, Delay: 50 * time.Millisecond}, "", "")
		start := time.Now()
		if _, err := a.Write(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Read(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		if got, want := time.Since(start), 150*time.Millisecond; got != want {
			t.Errorf("100 bytes at 1000 a second and 50 ms: got %v, want %v", got, want)
		}
		a.Cut()
		b.SetReadDeadline(time.Now().Add(time.Hour))
		a.Close()
		if _, err := b.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read after a cut and a close: got %v, want a deadline exceeded", err)
		}
	})
}

func TestPipeStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := carriertest.Pipe(carriertest.Link{Delay: time.Millisecond}, "", "")
		a.Stall()
		if _, err := a.Write([]byte("late")); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Minute, a.Resume)
		start, got := time.Now(), make([]byte, 10)
		n, err := b.Read(got)
		if string(got[:n]) != "late" || err != nil || time.Since(start) != time.Minute {
			t.Errorf("after %v: got %q, %v, want all after a minute", time.Since(start), got[:n], err)
		}
	})
}
