package tcp_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/uplink"
	"sluice/uplink/carriertest"
	"sluice/uplink/secure"
	"sluice/uplink/tcp"
)

// authority signs certificates for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{pool: x509.NewCertPool()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pool.AddCert(a.cert)
	return a
}

func (a *authority) issue(t *testing.T, name string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func listen(t *testing.T, a *authority) *secure.Listener {
	t.Helper()
	l, err := tcp.Listen("127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{a.issue(t, "collector-1")}, ClientCAs: a.pool,
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func dial(t *testing.T, address string, config *tls.Config) (uplink.Carrier, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return tcp.Dial(ctx, tcp.Options{Address: address, TLS: config})
}

func TestSuite(t *testing.T) {
	a := newAuthority(t)
	l := listen(t, a)
	config := &tls.Config{RootCAs: a.pool, Certificates: []tls.Certificate{a.issue(t, "gw-1")}}
	carriertest.Suite(t, func(t *testing.T) (near, far uplink.Carrier, nearPeer, farPeer string) {
		near, err := dial(t, l.Addr().String(), config)
		if err != nil {
			t.Fatal(err)
		}
		far, err = l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return near, far, "collector-1", "gw-1"
	})
}

func TestInfo(t *testing.T) {
	a := newAuthority(t)
	l := listen(t, a)
	c, err := dial(t, l.Addr().String(), &tls.Config{RootCAs: a.pool, Certificates: []tls.Certificate{a.issue(t, "gw-1")}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	info := c.Info()
	if runtime.GOOS == "linux" && (info.RTT <= 0 || info.Congestion == "") {
		t.Errorf("info: got %+v, want a round trip and the congestion control", info)
	}
	t.Logf("after the handshake: %+v", info)
}

// Nobody gets in, and no gateway sends anything, without a certificate that the
// other end's authority signed.
func TestStrangersStayOut(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	l := listen(t, ours)
	for _, c := range []struct {
		name   string
		config *tls.Config
	}{
		{"no certificate", &tls.Config{RootCAs: ours.pool}},
		{"another authority's", &tls.Config{RootCAs: ours.pool, Certificates: []tls.Certificate{theirs.issue(t, "gw-1")}}},
		{"collector of another authority", &tls.Config{RootCAs: theirs.pool, Certificates: []tls.Certificate{ours.issue(t, "gw-1")}}},
		{"no name", &tls.Config{RootCAs: ours.pool, Certificates: []tls.Certificate{ours.issue(t, "")}}},
		{"TLS 1.2", &tls.Config{RootCAs: ours.pool, Certificates: []tls.Certificate{ours.issue(t, "gw-1")}, MaxVersion: tls.VersionTLS12}},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, err := dial(t, l.Addr().String(), c.config)
			if err != nil {
				return
			}
			defer conn.Close()
			// The client of TLS 1.3 is done before the server has judged it.
			conn.SetReadDeadline(time.Now().Add(10 * time.Second))
			_, err = conn.Read(make([]byte, 1))
			var timeout net.Error
			if err == nil || errors.As(err, &timeout) && timeout.Timeout() {
				t.Errorf("read: got %v, want to be turned away", err)
			}
		})
	}
}

func TestDialErrors(t *testing.T) {
	config := &tls.Config{}
	for _, c := range []struct{ address, want string }{
		{"collector.example.org", "host:port"},
		{"127.0.0.1:1", "127.0.0.1:1"},
	} {
		_, err := dial(t, c.address, config)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("dial %q: got %v, want it to name %q", c.address, err, c.want)
		}
	}
}

// Names are looked up as the caller says, and a dead address takes no more than
// its share of the time from those behind it (F16).
func TestDialResolves(t *testing.T) {
	a := newAuthority(t)
	l := listen(t, a)
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	alive, closed := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")
	silent := netip.MustParseAddr("127.0.0.3")
	wrong := errors.New("no such name here")
	for _, c := range []struct {
		name  string
		host  string
		addrs []netip.Addr
		err   error
		want  string // in the error; empty for none
	}{
		{"one address", "collector.test", []netip.Addr{alive}, nil, ""},
		{"the second answers", "collector.test", []netip.Addr{closed, alive}, nil, ""},
		{"the first is silent", "collector.test", []netip.Addr{silent, alive}, nil, ""},
		{"none answers", "collector.test", []netip.Addr{closed}, nil, "127.0.0.2:" + port},
		{"no address", "collector.test", nil, nil, "no address"},
		{"unknown", "collector.test", nil, wrong, wrong.Error()},
		{"an address needs no look-up", "127.0.0.1", nil, wrong, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			var asked string
			conn, err := tcp.Dial(ctx, tcp.Options{
				Address: net.JoinHostPort(c.host, port),
				TLS:     &tls.Config{RootCAs: a.pool, Certificates: []tls.Certificate{a.issue(t, "gw-1")}, ServerName: "127.0.0.1"},
				Resolve: func(_ context.Context, host string) ([]netip.Addr, error) {
					asked = host
					return c.addrs, c.err
				},
				// Stands for a network that swallows everything to one address.
				Control: func(ctx context.Context, _, address string, _ syscall.RawConn) error {
					if !strings.HasPrefix(address, silent.String()) {
						return nil
					}
					<-ctx.Done()
					return ctx.Err()
				},
			})
			if err == nil {
				conn.Close()
			}
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if c.host == "collector.test" && asked != c.host {
				t.Errorf("looked up %q, want %q", asked, c.host)
			}
		})
	}
}

func TestListenNeedsAuthority(t *testing.T) {
	if l, err := tcp.Listen("127.0.0.1:0", &tls.Config{}, slog.New(slog.DiscardHandler)); err == nil {
		l.Close()
		t.Error("listen without an authority for gateways: got no error")
	}
}

func TestAcceptAfterClose(t *testing.T) {
	l := listen(t, newAuthority(t))
	l.Close()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v, want %v", err, net.ErrClosed)
	}
}
