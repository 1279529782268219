package broker

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	pahomqtt "github.com/eclipse/paho.mqtt.golang"
	"github.com/mochi-mqtt/server/v2/packets"

	"sluice/reading"
)

func testCertificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "broker"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// Paho, version 3.1.1, over TCP and TLS: what Go programs use.
func TestPahoOverTCPAndTLS(t *testing.T) {
	cert, pool := testCertificate(t)
	sink := newGroupSink(t, time.Millisecond)
	b := start(t, Options{Sink: sink, Listeners: []Listener{
		{Address: "127.0.0.1:0"},
		{Address: "127.0.0.1:0", TLS: &tls.Config{Certificates: []tls.Certificate{cert}}},
	}})
	addrs := b.Addrs()
	got := make(chan string, 100)
	finished := func(tok pahomqtt.Token) {
		t.Helper()
		if !tok.WaitTimeout(10 * time.Second) {
			t.Fatal("not finished in 10 s")
		}
		if tok.Error() != nil {
			t.Fatal(tok.Error())
		}
	}
	connect := func(id, url string) pahomqtt.Client {
		c := pahomqtt.NewClient(pahomqtt.NewClientOptions().AddBroker(url).SetClientID(id).
			SetTLSConfig(&tls.Config{RootCAs: pool}).SetConnectRetry(false))
		finished(c.Connect())
		t.Cleanup(func() { c.Disconnect(100) })
		return c
	}
	sub := connect("reader", "tcp://"+addrs[0].String())
	finished(sub.Subscribe("t/#", 2, func(_ pahomqtt.Client, m pahomqtt.Message) { got <- string(m.Payload()) }))
	pub := connect("sensor", "ssl://"+addrs[1].String())
	var want []string
	for qos := range byte(3) {
		p := string('a' + qos)
		want = append(want, p)
		finished(pub.Publish("t/x", qos, false, p))
	}
	sink.awaitValues(t, want...)
	for _, w := range want {
		select {
		case g := <-got:
			if g != w {
				t.Errorf("received: got %q, want %q", g, w)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("message not received in 10 s")
		}
	}
}

// Close ends connections that have not sent CONNECT, and does so at once.
func TestCloseWithStrangers(t *testing.T) {
	b := start(t, Options{Sink: newGroupSink(t, 0)})
	nc, err := net.Dial("tcp", b.Addrs()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	dial(t, b, 5, "known").expectQuiet()
	begun := time.Now()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > connectTimeout/2 {
		t.Errorf("close: took %v", took)
	}
}

func TestTooManyClients(t *testing.T) {
	b := start(t, Options{Sink: newGroupSink(t, 0), MaxClients: 1})
	dial(t, b, 4, "first")
	if c := dialRaw(t, b.Addrs()[0], 4, "second"); c.connack.ReasonCode == 0 {
		t.Error("second client: got accepted")
	}
}

// F28: a payload above the limit ends the connection and is counted.
func TestPacketTooLarge(t *testing.T) {
	sink := newGroupSink(t, 0)
	b := start(t, Options{Sink: sink, MaxPacket: 1000})
	c := dial(t, b, 5, "sensor")
	if got := c.connack.Properties.MaximumPacketSize; got != 1000 {
		t.Errorf("maximum packet size: got %d, want 1000", got)
	}
	c.send(publish(1, 1, "t", strings.Repeat("x", 1001)))
	c.expectEnd()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if got := b.Stats().Refused["size"]; got != 1 {
		t.Errorf("refused for size: got %d, want 1", got)
	}
}

func TestNewFaults(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	good := Options{
		Sink: newGroupSink(t, 0), Decoder: textDecoder{}, Now: func() reading.Time { return reading.Time{} },
		Logger: slog.New(slog.DiscardHandler),
	}
	for want, change := range map[string]func(*Options){
		"required":                     func(o *Options) { o.Sink = nil },
		"no listener":                  func(o *Options) {},
		"is another broker running":    func(o *Options) { o.Listeners = []Listener{{Address: busy.Addr().String()}} },
		"give either a password":       func(o *Options) { o.Users = []User{{Name: "x"}}; o.Listeners = []Listener{{Address: "127.0.0.1:0"}} },
		"retained messages /dev/null/": func(o *Options) { o.RetainedFile = "/dev/null/x"; o.Listeners = []Listener{{Address: "127.0.0.1:0"}} },
	} {
		o := good
		change(&o)
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

// The time limit for CONNECT is not one for clients without a keepalive.
func TestConnectTimeoutEndsWithConnect(t *testing.T) {
	b := start(t, Options{Sink: newGroupSink(t, 0)})
	near, far := net.Pipe()
	defer far.Close()
	nc := &deadlineConn{Conn: near}
	var before, after time.Time
	established := make(chan struct{})
	b.listener[0].serve(nc, func(_ string, c net.Conn) error {
		defer close(established)
		before = nc.read
		c.SetDeadline(time.Time{}) // as the library does for a keepalive of 0
		after = nc.read
		return nil
	})
	<-established
	if before.IsZero() || !after.IsZero() {
		t.Errorf("read deadline: got %v before CONNECT and %v after it, want some and none", before, after)
	}
}

type deadlineConn struct {
	net.Conn
	read time.Time
}

func (c *deadlineConn) SetReadDeadline(t time.Time) error {
	c.read = t
	return c.Conn.SetReadDeadline(t)
}

// Closing ends while clients come, publish and go.
func TestCloseWhileClientsComeAndGo(t *testing.T) {
	const clients, publishes = 10, 50
	for round := range 100 {
		b := start(t, Options{Sink: newGroupSink(t, time.Millisecond)})
		addr := b.Addrs()[0].String()
		heard := make(chan struct{}, clients) // of an answer
		var ended sync.WaitGroup
		for i := range clients {
			connect := packets.Packet{
				FixedHeader:     packets.FixedHeader{Type: packets.Connect},
				ProtocolVersion: 4,
				Connect: packets.ConnectParams{
					ProtocolName: []byte("MQTT"), ClientIdentifier: fmt.Sprint("sensor-", i), Clean: true,
				},
			}
			out := encodePacket(t, 4, connect)
			for id := range uint16(publishes) {
				out = append(out, encodePacket(t, 4, publish(id+1, 1, "t", "x"))...)
			}
			ended.Go(func() {
				defer func() { heard <- struct{}{} }()
				nc, err := net.Dial("tcp", addr)
				if err != nil {
					return // closed already
				}
				defer nc.Close()
				if _, err := nc.Write(out); err == nil {
					_, _ = nc.Read(make([]byte, 4+4*(round%publishes)))
				}
			})
		}
		for range round % clients {
			<-heard
		}
		closed := make(chan error, 1)
		go func() { closed <- b.Close() }()
		select {
		case err := <-closed:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("round %d: the broker is not closed after 10 s", round)
		}
		ended.Wait()
	}
}
