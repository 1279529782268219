package lab

import (
	"io"
	"net"
	"testing"
	"time"
)

// Every packet of a transfer is seen with its headers, and nothing else is.
func TestNamespaceCountsPackets(t *testing.T) {
	far, err := NewNamespace()
	if err != nil {
		t.Fatalf("%v: run the tests as root", err)
	}
	defer far.Close()
	var l net.Listener
	err = far.do(func() (err error) {
		l, err = net.Listen("tcp4", FarAddress+":0")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const size = 1 << 20
	served := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, err = io.CopyN(io.Discard, c, size)
			c.Close()
		}
		served <- err
	}()
	before, err := far.Traffic()
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.DialTimeout("tcp4", l.Addr().String(), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	after, err := far.Traffic()
	if err != nil {
		t.Fatal(err)
	}
	got := after.Sub(before)
	const payload, header = 1448, 52 // of a full TCP segment on Ethernet
	segments := uint64((size + payload - 1) / payload)
	if least := size + segments*header; got.Bytes < least || got.Bytes > least+segments*header+1000 {
		t.Errorf("%d bytes crossed the link, want between %d and that with an acknowledgement for each segment", got.Bytes, least)
	}
	if got.Packets < segments {
		t.Errorf("%d packets crossed the link, want at least %d: segments were counted together", got.Packets, segments)
	}
}
