package collector_test

import (
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/csv"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"testing"
	"time"

	"sluice/collector"
	"sluice/reading"
	"sluice/uplink"
	"sluice/uplink/tcp"
)

// certificates returns the TLS configurations of a collector and a gateway.
func certificates(t testing.TB) (server, client *tls.Config) {
	t.Helper()
	key := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	caKey := key()
	template := func(serial int64, name string) *x509.Certificate {
		return &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	}
	sign := func(c, parent *x509.Certificate, public *ecdsa.PublicKey) []byte {
		der, err := x509.CreateCertificate(rand.Reader, c, parent, public, caKey)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	ca := template(1, "authority")
	ca.IsCA, ca.BasicConstraintsValid, ca.KeyUsage = true, true, x509.KeyUsageCertSign
	parsed, err := x509.ParseCertificate(sign(ca, ca, &caKey.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	issue := func(serial int64, name string) tls.Certificate {
		k := key()
		c := template(serial, name)
		c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
		return tls.Certificate{Certificate: [][]byte{sign(c, parsed, &k.PublicKey)}, PrivateKey: k}
	}
	return &tls.Config{Certificates: []tls.Certificate{issue(2, "collector")}, ClientCAs: pool},
		&tls.Config{Certificates: []tls.Certificate{issue(3, gateway)}, RootCAs: pool}
}

// overTCP starts both ends on this machine.
func overTCP(t testing.TB, q uplink.Queue, out collector.Output, flush time.Duration) (*uplink.Sender, *collector.Collector) {
	t.Helper()
	server, client := certificates(t)
	log := slog.New(slog.DiscardHandler)
	ln, err := tcp.Listen("127.0.0.1:0", server, log)
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	c := collector.New(collector.Options{Outputs: []collector.Output{out}, Limits: collector.DefaultLimits(), Logger: log})
	s := uplink.New(uplink.Options{
		Gateway: gateway, Queue: q, Flush: flush, MaxFrame: 256 << 10,
		Keepalive: 90 * time.Second, AckTimeout: 15 * time.Second, Logger: log,
		Slots: []uplink.Slot{{Name: "tcp", Dialers: []uplink.Dialer{{Name: address, Kind: "tcp", Dial: func(ctx context.Context) (uplink.Carrier, error) {
			return tcp.Dial(ctx, tcp.Options{Address: address, TLS: client})
		}}}}},
	})
	ctx, cancel := context.WithCancel(context.Background())
	served, ran := make(chan error, 1), make(chan error, 1)
	go func() { served <- c.Serve(ctx, ln) }()
	go func() { ran <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ran; err != nil {
			t.Errorf("uplink: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("collector: %v", err)
		}
	})
	return s, c
}

// office returns the readings of rooms in one minute of the office data.
func office(t testing.TB, rooms int) func(minute int) []reading.Reading {
	t.Helper()
	f, err := os.Open("../testdata/office-minutes.csv.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(z).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"temperature", "humidity", "light", "co2", "humidity_ratio", "occupancy"}
	rows = rows[1:]
	return func(minute int) []reading.Reading {
		var rs []reading.Reading
		for room := range rooms {
			row := rows[(minute+room*900)%len(rows)]
			at := int64(1764536400+minute*60+room*3) * 1e9
			for i, name := range names {
				v, err := reading.Number(row[len(row)-len(names)+i])
				if err != nil {
					t.Fatal(err)
				}
				rs = append(rs, reading.Reading{Device: fmt.Sprintf("room-%02d", room), Name: name, Value: v, Time: reading.Time{Wall: at}})
			}
		}
		return rs
	}
}

func TestOverTCP(t *testing.T) {
	q, out := newQueue(), newOutput("a")
	for range 200 {
		q.add(reading.Backfill, 500)
	}
	s, c := overTCP(t, q, out, 10*time.Millisecond)
	q.add(reading.Alarm, 3)
	q.add(reading.Live, 30)
	within(t, 30*time.Second, "all acknowledged", func() bool { return q.waiting() == 0 })
	out.check(t, stream(reading.Backfill), 100_000, nil)
	out.check(t, stream(reading.Live), 30, nil)
	out.check(t, stream(reading.Alarm), 3, nil)
	st := s.Stats()
	if st.State != uplink.Delivering || !s.Delivering() || st.Carrier.Kind != "tcp" || st.Readings != 100_033 || st.BytesOut == 0 || st.RTT == 0 {
		t.Errorf("uplink: %+v", st)
	}
	sessions := c.Stats().Sessions
	if len(sessions) != 1 || sessions[0].Gateway != gateway || len(sessions[0].Carriers) != 1 {
		t.Errorf("collector: %+v", sessions)
	}
}

// Twenty rooms once a minute in one frame each stay under 650 bytes a minute,
// headers and acknowledgements included: a packet with the frame, one with the
// ack, one that acknowledges that.
func TestBytesPerMinute(t *testing.T) {
	const minutes, packet = 40, 52 // IPv4 and TCP with timestamps
	q, out := newQueue(), newOutput("a")
	s, _ := overTCP(t, q, out, 0)
	minute := office(t, 20)
	send := func(m int) {
		rs := minute(m)
		q.mu.Lock()
		q.addSegment(reading.Live, reading.Segment{Count: len(rs), Data: reading.AppendBatch(nil, rs)})
		q.mu.Unlock()
		within(t, 10*time.Second, "acknowledged", func() bool { return q.waiting() == 0 })
	}
	send(0)
	before := s.Stats()
	for m := 1; m <= minutes; m++ {
		send(m)
	}
	after := s.Stats()
	if got := after.Frames - before.Frames; got != minutes {
		t.Fatalf("%d frames in %d minutes", got, minutes)
	}
	up := int(after.BytesOut-before.BytesOut) / minutes
	down := int(after.BytesIn-before.BytesIn) / minutes
	total := up + down + 3*packet
	t.Logf("a minute: %d bytes up, %d down, %d with the headers of three packets; first frame and handshakes %d up, %d down",
		up, down, total, before.BytesOut, before.BytesIn)
	if total > 650 {
		t.Errorf("%d bytes a minute, want at most 650", total)
	}
}

// BenchmarkDrain drains a backlog of office readings over TCP and TLS with both
// ends on this machine.
func BenchmarkDrain(b *testing.B) {
	minute := office(b, 20)
	const segments, minutesEach = 500, 10
	var data [][]byte
	count := 0
	for i := range segments {
		var rs []reading.Reading
		for m := range minutesEach {
			rs = append(rs, minute(i*minutesEach+m)...)
		}
		count = len(rs)
		data = append(data, reading.AppendBatch(nil, rs))
	}
	for b.Loop() {
		q := newQueue()
		q.mu.Lock()
		for _, d := range data {
			q.addSegment(reading.Backfill, reading.Segment{Count: count, Data: d})
		}
		q.mu.Unlock()
		out := &discard{done: make(chan struct{}), until: segments * uint64(count)}
		s, _ := overTCP(b, q, out, 0)
		<-out.done
		st := s.Stats()
		b.ReportMetric(float64(st.BytesOut)/float64(out.until), "B/reading")
	}
	b.ReportMetric(float64(b.N)*segments*float64(count)/b.Elapsed().Seconds(), "readings/s")
}

// discard is an output that only counts.
type discard struct {
	last  uint64
	until uint64
	done  chan struct{}
}

func (d *discard) Name() string { return "discard" }
func (d *discard) Close() error { return nil }
func (d *discard) Last(context.Context, collector.Stream) (uint64, error) {
	return 0, nil
}
func (d *discard) Write(_ context.Context, s collector.Stream, _ uint64, ds []collector.Delivery) error {
	if s.Lane == reading.Backfill {
		if d.last = ds[len(ds)-1].Last(); d.last == d.until {
			close(d.done)
		}
	}
	return nil
}
