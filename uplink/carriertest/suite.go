package carriertest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"sluice/uplink"
)

// limit ends a test that hangs.
const limit = 20 * time.Second

// Suite tests what the session expects of a carrier. open returns the two ends
// of a fresh one, and the names their peers must have.
func Suite(t *testing.T, open func(t *testing.T) (near, far uplink.Carrier, nearPeer, farPeer string)) {
	pair := func(t *testing.T) (near, far uplink.Carrier) {
		near, far, _, _ = open(t)
		t.Cleanup(func() { near.Close(); far.Close() })
		return near, far
	}
	t.Run("Peer", func(t *testing.T) {
		near, far, nearPeer, farPeer := open(t)
		defer near.Close()
		defer far.Close()
		if near.Peer() != nearPeer || far.Peer() != farPeer {
			t.Errorf("peers: got %q and %q, want %q and %q", near.Peer(), far.Peer(), nearPeer, farPeer)
		}
	})
	t.Run("Bytes", func(t *testing.T) {
		near, far := pair(t)
		sent := bytes.Repeat([]byte("0123456789abcde\n"), 64<<10)
		for _, c := range []struct {
			name     string
			from, to uplink.Carrier
		}{{"there", near, far}, {"back", far, near}} {
			c.from.SetDeadline(time.Now().Add(limit))
			c.to.SetDeadline(time.Now().Add(limit))
			failed := make(chan error, 1)
			go func() {
				_, err := c.from.Write(sent)
				failed <- err
			}()
			got := make([]byte, len(sent))
			if _, err := io.ReadFull(c.to, got); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			if err := <-failed; err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			if !bytes.Equal(got, sent) {
				t.Errorf("%s: bytes differ", c.name)
			}
		}
		info := near.Info()
		if least := uint64(len(sent)); info.Kind == "" || info.BytesIn < least || info.BytesOut < least {
			t.Errorf("info: got %+v, want a kind and at least %d bytes each way", info, least)
		}
	})
	t.Run("ReadDeadline", func(t *testing.T) {
		near, _ := pair(t)
		near.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %v, want a deadline exceeded", err)
		}
	})
	t.Run("WriteDeadline", func(t *testing.T) {
		near, _ := pair(t) // the far end reads nothing
		near.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		block := make([]byte, 1<<20)
		for range 256 {
			if _, err := near.Write(block); err != nil {
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("got %v, want a deadline exceeded", err)
				}
				return
			}
		}
		t.Error("256 MB were taken from a writer that nobody reads")
	})
	t.Run("CloseEndsRead", func(t *testing.T) {
		near, _ := pair(t)
		near.SetDeadline(time.Now().Add(limit))
		failed := make(chan error, 1)
		go func() {
			_, err := near.Read(make([]byte, 1))
			failed <- err
		}()
		near.Close()
		if err := <-failed; err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read of a closed carrier: got %v, want an error at once", err)
		}
		if _, err := near.Write([]byte{1}); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("write to a closed carrier: got %v, want %v or like it", err, net.ErrClosed)
		}
	})
	t.Run("CloseIsSeen", func(t *testing.T) {
		near, far := pair(t)
		far.SetDeadline(time.Now().Add(limit))
		if _, err := near.Write([]byte("bye")); err != nil {
			t.Fatal(err)
		}
		near.Close()
		got, err := io.ReadAll(far)
		if string(got) != "bye" || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("after a close: got %q, %v, want what was written, then an end", got, err)
		}
	})
}
