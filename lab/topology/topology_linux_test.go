package topology

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"
)

// root skips a test that changes networks where this process may not.
func root(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: runs in the lab's guest")
	}
}

// twoPaths makes a network of two paths.
func twoPaths(t *testing.T, o ...PathOptions) *Multipath {
	t.Helper()
	root(t)
	if o == nil {
		o = []PathOptions{{Device: "wlan0"}, {Device: "wwan0"}}
	}
	m, err := NewMultipath(o...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// echo answers datagrams on a host and returns where.
func echo(t *testing.T, h *Host, a netip.Addr) netip.AddrPort {
	t.Helper()
	var c net.PacketConn
	err := h.Do(func() (err error) {
		c, err = net.ListenPacket("udp4", netip.AddrPortFrom(a, 0).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		buf := make([]byte, 2048)
		for {
			_, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			// The answer says from where the question seemed to come.
			c.WriteTo([]byte(from.String()), from)
		}
	}()
	return netip.MustParseAddrPort(c.LocalAddr().String())
}

// ask sends a datagram to an echo and returns from where it seemed to come;
// empty if nothing came back in time.
func ask(t *testing.T, h *Host, from netip.Addr, to netip.AddrPort) string {
	t.Helper()
	var c *net.UDPConn
	err := h.Do(func() (err error) {
		c, err = net.DialUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), net.UDPAddrFromAddrPort(to))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(300 * time.Millisecond))
	if _, err := c.Write([]byte("who am I?")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	n, err := c.Read(buf)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	seen, err := netip.ParseAddrPort(string(buf[:n]))
	if err != nil {
		t.Fatal(err)
	}
	return seen.Addr().String()
}

// Each path leads to the collector's own address and to the common one, and
// stops when it is cut, filtered or down, while the other goes on.
func TestPathsAreIndependent(t *testing.T) {
	m := twoPaths(t)
	common := echo(t, m.Collector, m.Common)
	wlan, wwan := m.Paths[0], m.Paths[1]
	// Without rules of its own the gateway sends everything by the first path:
	// the second is asked from beyond.
	second := echo(t, m.Collector, wwan.Exit.B.Address())
	expect := func(what, first, beyond string) {
		t.Helper()
		if got := ask(t, m.Gateway, netip.IPv4Unspecified(), common); got != first {
			t.Errorf("%s: over the first path: got %q, want %q", what, got, first)
		}
		if got := ask(t, wwan.Near, netip.IPv4Unspecified(), second); got != beyond {
			t.Errorf("%s: over the second path: got %q, want %q", what, got, beyond)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const first, beyond = "10.71.0.2", "10.72.1.2"
	expect("at the start", first, beyond)
	must(wlan.Cut())
	expect("first cut", "", beyond)
	must(wlan.Restore())
	must(wwan.Drop(ICMP, UDP))
	expect("UDP dropped on the second", first, "")
	must(wwan.Drop(SCTP))
	expect("UDP passes again", first, beyond)
	must(wlan.Access.B.Down())
	must(wlan.Access.B.Up())
	expect("link down and up", first, beyond)
	must(wlan.Masquerade())
	expect("behind NAT", "10.72.0.2", beyond)
	must(wlan.Access.A.Renumber(netip.MustParsePrefix("10.71.0.77/24")))
	must(wlan.Join(m))
	expect("renumbered", "10.72.0.2", beyond)
}

// Every packet of a transfer is seen with its headers, and nothing else is.
func TestLinkCountsPackets(t *testing.T) {
	root(t)
	far, err := NewHost("far")
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	link, err := Connect(
		EndOptions{Device: "topologytest", Address: netip.MustParsePrefix("198.18.78.1/30")},
		EndOptions{Host: far, Device: "eth0", Address: netip.MustParsePrefix("198.18.78.2/30")},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer link.Close()
	l, err := far.Listen(t.Context(), "tcp4", "198.18.78.2:0")
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
	before, err := link.Traffic()
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
	after, err := link.Traffic()
	if err != nil {
		t.Fatal(err)
	}
	got := after.Sub(before)
	const payload, header = 1448, 52 // of a full TCP segment on Ethernet
	segments := uint64((size + payload - 1) / payload)
	// Acknowledgements come to less than half as much, and so does what a busy
	// machine sends again; counted at both ends it would be twice as much.
	if least := size + segments*header; got.Bytes < least || got.Bytes > least*3/2 {
		t.Errorf("%d bytes crossed the link, want at least %d and half of it more at most", got.Bytes, least)
	}
	if got.Packets < segments {
		t.Errorf("%d packets crossed the link, want at least %d: segments were counted together", got.Packets, segments)
	}
}

// A link is as slow, late and lossy as it was told to be, also when it was told
// while it carries.
func TestQuality(t *testing.T) {
	m := twoPaths(t, PathOptions{Device: "wlan0"})
	path := m.Paths[0]
	if err := path.Set(Quality{Delay: 20 * time.Millisecond}, Quality{}); errors.Is(err, ErrNoNetem) {
		if os.Getenv("SLUICE_GUEST") != "" {
			t.Fatal(err)
		}
		t.Skip("needs netem: runs in the lab's guest")
	} else if err != nil {
		t.Fatal(err)
	}
	at := echo(t, m.Collector, m.Common)
	start := time.Now()
	if ask(t, m.Gateway, netip.IPv4Unspecified(), at) == "" {
		t.Error("no answer over a link that delays by 20 ms")
	}
	if took := time.Since(start); took < 20*time.Millisecond {
		t.Errorf("the answer took %v over a link that delays by 20 ms", took)
	}
	const packets = 3000
	tests := []struct {
		name string
		up   Quality
		want float64 // share lost
	}{
		{"clean", Quality{}, 0},
		{"independent", Quality{Loss: 0.2}, 0.2},
		{"all", Quality{Loss: 1}, 1},
		{"bursts", Quality{Burst: BurstsOf(0.1, 5)}, 0.1},
		{"clean again", Quality{}, 0},
	}
	for _, test := range tests {
		if err := path.Set(test.up, Quality{}); err != nil {
			t.Fatal(err)
		}
		lost, runs := flood(t, m, packets)
		if share := float64(lost) / packets; share < test.want-0.04 || share > test.want+0.04 {
			t.Errorf("%s: lost %.3f, want %.3f", test.name, share, test.want)
		}
		if b := test.up.Burst; b != (Burst{}) {
			if length := float64(lost) / float64(max(runs, 1)); length < 3.5 || length > 7 {
				t.Errorf("%s: bursts of %.1f packets, want about 5", test.name, length)
			}
		}
	}
	// 200 packets of 1000 bytes at 4 Mbit/s.
	if err := path.Set(Quality{Rate: 4_000_000}, Quality{}); err != nil {
		t.Fatal(err)
	}
	start = time.Now()
	if lost, _ := flood(t, m, 200); lost > 0 {
		t.Errorf("a rate alone lost %d of 200 packets", lost)
	}
	if took := time.Since(start).Seconds(); took < 0.35 || took > 1.5 {
		t.Errorf("200 packets of 1042 bytes at 4 Mbit/s took %.2f s, want about 0.42", took)
	}
}

// flood sends numbered datagrams of 1000 bytes and returns how many were lost,
// and in how many runs.
func flood(t *testing.T, m *Multipath, packets int) (lost, runs int) {
	t.Helper()
	var in net.PacketConn
	err := m.Collector.Do(func() (err error) {
		in, err = net.ListenPacket("udp4", netip.AddrPortFrom(m.Common, 0).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	in.(*net.UDPConn).SetReadBuffer(4 << 20)
	out, err := m.Gateway.DialContext(context.Background(), "udp4", in.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	arrived := make([]bool, packets)
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 2048)
		for {
			in.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
			n, _, err := in.ReadFrom(buf)
			if err != nil {
				return
			}
			if n == 1000 {
				arrived[int(buf[0])|int(buf[1])<<8] = true
			}
		}
	}()
	packet := make([]byte, 1000)
	for i := range packets {
		packet[0], packet[1] = byte(i), byte(i>>8)
		if _, err := out.Write(packet); err != nil {
			t.Fatal(err)
		}
		if i%100 == 99 && i < packets-1 {
			// Not faster than the queue of a link, 1000 packets, empties.
			pace := time.NewTimer(5 * time.Millisecond)
			<-pace.C
		}
	}
	<-done
	for i, ok := range arrived {
		if ok {
			continue
		}
		lost++
		if i == 0 || arrived[i-1] {
			runs++
		}
	}
	return lost, runs
}
