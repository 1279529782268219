package probe

import (
	"context"
	"net"
	"strconv"
	"testing"
	"time"
)

// A machine with several addresses answers from the one that was asked: a NAT lets
// nothing else in. A connected socket takes answers from there alone.
func TestRespondFromTheAddressAsked(t *testing.T) {
	for _, listen := range []struct{ network, address string }{{"udp4", "0.0.0.0:0"}, {"udp", "[::]:0"}} {
		t.Run(listen.network, func(t *testing.T) {
			far, err := net.ListenPacket(listen.network, listen.address)
			if err != nil {
				t.Skip("needs this family: ", err)
			}
			defer far.Close()
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- Respond(ctx, far) }()
			port := strconv.Itoa(far.LocalAddr().(*net.UDPAddr).Port)
			for _, asked := range []string{"127.0.0.1", "127.0.0.2"} {
				near, err := net.Dial("udp", net.JoinHostPort(asked, port))
				if err != nil {
					t.Fatal(err)
				}
				defer near.Close()
				if _, err := near.Write(appendPacket(nil, request, 1, packetLen)); err != nil {
					t.Fatal(err)
				}
				near.SetReadDeadline(time.Now().Add(5 * time.Second))
				b := make([]byte, packetLen)
				if n, err := near.Read(b); err != nil || n != packetLen {
					t.Errorf("asked at %s: got %d bytes, %v", asked, n, err)
				}
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}
