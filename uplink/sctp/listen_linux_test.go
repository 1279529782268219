//go:build !386

package sctp

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"
)

// A kernel without SCTP says so quickly, with what to do about it.
func TestSupported(t *testing.T) {
	start := time.Now()
	err := Supported()
	if err != nil && !errors.Is(err, ErrUnsupported) {
		t.Errorf("got %v, want none or %v", err, ErrUnsupported)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("the answer took %v", took)
	}
	if err == nil {
		return
	}
	t.Log(err)
	remote := []netip.AddrPort{netip.MustParseAddrPort("198.18.0.1:7443")}
	if _, err := Dial(t.Context(), Options{Remote: remote, TLS: &tls.Config{}}); !errors.Is(err, ErrUnsupported) {
		t.Errorf("dial: got %v, want %v", err, ErrUnsupported)
	}
	if _, err := ListenRaw(remote, Tuning{}); !errors.Is(err, ErrUnsupported) {
		t.Errorf("listen: got %v, want %v", err, ErrUnsupported)
	}
}

func TestListenNeedsAuthority(t *testing.T) {
	l, err := Listen([]netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}, &tls.Config{}, Tuning{}, slog.New(slog.DiscardHandler))
	if err == nil {
		l.Close()
		t.Error("listen without an authority for gateways: got no error")
	}
}

// What was asked for is what the kernel has, also where a program of 32 bits
// runs on a kernel of 64.
func TestTuningIsHeeded(t *testing.T) {
	need(t, "SCTP", Supported())
	s, err := openSocket(false)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if err := (Tuning{Heartbeat: 7 * time.Second, MTU: 1280}).apply(s); err != nil {
		t.Fatal(err)
	}
	v := appliance()
	size, err := askThresholds(s)
	if err != nil {
		t.Fatal(err)
	}
	limits := thresholds(size, 0, 0, 0)
	if _, err := s.get(optThresholds, limits); err != nil {
		t.Fatal(err)
	}
	if want := thresholds(size, v.inactive, v.failing, v.moved); !bytes.Equal(limits[size-8:size-2], want[size-8:size-2]) {
		t.Errorf("thresholds of %d bytes: got %x, want %x", size, limits[:size], want)
	}
	params := pathParams{}.bytes()
	if _, err := s.get(optPathParams, params); err != nil {
		t.Fatal(err)
	}
	if got := native.Uint32(params[132:]); got != 7000 {
		t.Errorf("heartbeat: got %d ms, want 7000", got)
	}
	if got := native.Uint32(params[138:]); got != 1280 {
		t.Errorf("mtu: got %d, want 1280", got)
	}
	for _, c := range []struct {
		name         string
		option, size int
		want         []byte
	}{
		{"RTOINFO", optRTOInfo, rtoInfoSize, rtoInfo(v.initial, v.least, v.most)},
		{"DELAYED_SACK", optDelayedSack, 12, sackInfo(0, 1)}, // without a wait
		{"MAX_BURST", optMaxBurst, 8, assocValue(v.burst)},
		{"ASCONF_SUPPORTED", optAsconf, 8, assocValue(1)},
		{"EXPOSE_POTENTIALLY_FAILED_STATE", optExposeFailing, 8, assocValue(2)},
		{"NODELAY", optNoDelay, 4, native.AppendUint32(nil, 1)},
	} {
		got := make([]byte, c.size)
		if _, err := s.get(c.option, got); err != nil || !bytes.Equal(got, c.want) {
			t.Errorf("%s: got %x, %v, want %x", c.name, got, err, c.want)
		}
	}
}

// Nobody gets in, and no gateway sends anything, without a certificate that the
// other end's authority signed.
func TestStrangersStayOut(t *testing.T) {
	e := newEnds(t)
	stranger := newAuthority(t)
	for _, c := range []struct {
		name   string
		config *tls.Config
	}{
		{"no certificate", &tls.Config{RootCAs: e.config.RootCAs}},
		{"another authority's", &tls.Config{RootCAs: e.config.RootCAs, Certificates: []tls.Certificate{stranger.issue(t, "gw-1")}}},
		{"collector of another authority", &tls.Config{RootCAs: stranger.pool, Certificates: e.config.Certificates}},
		{"TLS 1.2", &tls.Config{RootCAs: e.config.RootCAs, Certificates: e.config.Certificates, MaxVersion: tls.VersionTLS12}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e.gateway.in(t, func() error {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				conn, err := Dial(ctx, Options{Local: e.local, Remote: e.remote, TLS: c.config})
				if err != nil {
					return nil
				}
				defer conn.Close()
				// The client of TLS 1.3 is done before the server has judged it.
				conn.SetReadDeadline(time.Now().Add(10 * time.Second))
				if _, err = conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("read: got %v, want to be turned away", err)
				}
				return nil
			})
		})
	}
	e.listener.Close()
	if _, err := e.listener.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept after close: got %v, want %v", err, net.ErrClosed)
	}
}

// Hundreds of associations wait in the poller, not in threads of their own.
func TestManyAssociations(t *testing.T) {
	const many = 500
	n := newTwoPaths(t)
	var l *RawListener
	n.collector.in(t, func() (err error) {
		l, err = ListenRaw(n.remote, Tuning{})
		return err
	})
	defer l.Close()
	var wg sync.WaitGroup
	accepted := make(chan net.Conn, many)
	wg.Go(func() {
		for range many {
			c, err := l.Accept()
			if err != nil {
				t.Errorf("accept: %v", err)
				return
			}
			accepted <- c
			wg.Go(func() { io.Copy(c, c) })
		}
	})
	var dialled []*Association
	n.gateway.in(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		defer cancel()
		for range many {
			a, err := DialRaw(ctx, Options{Local: n.local, Remote: n.remote})
			if err != nil {
				return err
			}
			dialled = append(dialled, a)
			wg.Go(func() { io.Copy(io.Discard, a) })
		}
		return nil
	})
	for _, a := range dialled {
		if _, err := a.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
	}
	threads := countThreads(t)
	t.Logf("%d associations with two readers each: %d threads", many, threads)
	if threads > 50 {
		t.Errorf("%d threads for %d associations", threads, many)
	}
	for _, a := range dialled {
		a.Close()
	}
	for range many {
		(<-accepted).Close()
	}
	wg.Wait()
}

func countThreads(t *testing.T) int {
	t.Helper()
	tasks, err := os.ReadDir("/proc/" + strconv.Itoa(os.Getpid()) + "/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(tasks)
}
