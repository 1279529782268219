package lab

import (
	"io"
	"net"
	"os"
	"testing"
	"time"
)

func TestCutFallsSilentAndCarriesOn(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { // an echo, until the listener is closed
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.Copy(c, c)
			}()
		}
	}()
	cut, err := NewCut(l.Addr().String(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer cut.Close()
	c, err := net.Dial("tcp", cut.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	buf := make([]byte, 4)
	ask := func(word string, deadline time.Duration) error {
		c.SetDeadline(time.Now().Add(deadline))
		if _, err := io.WriteString(c, word); err != nil {
			return err
		}
		_, err := io.ReadFull(c, buf)
		return err
	}
	if err := ask("ping", 5*time.Second); err != nil {
		t.Fatalf("link up: %v", err)
	}
	cut.Silence()
	if err := ask("pong", 100*time.Millisecond); !os.IsTimeout(err) {
		t.Fatalf("link silent: got %v, want a timeout", err)
	}
	cut.Restore()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.ReadFull(c, buf); err != nil || string(buf) != "pong" {
		t.Fatalf("link restored: got %q, %v, want what was under way", buf, err)
	}
}
