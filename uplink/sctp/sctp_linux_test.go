//go:build !386

package sctp

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"log/slog"
	"math/big"
	"net"
	"testing"
	"time"

	"sluice/uplink"
	"sluice/uplink/carriertest"
	"sluice/uplink/secure"
)

// authority signs certificates for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t testing.TB) *authority {
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

func (a *authority) issue(t testing.TB, name string) tls.Certificate {
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
		IPAddresses: []net.IP{net.IPv4(10, 90, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// ends are a listener and what dials it.
type ends struct {
	*twoPaths
	listener *secure.Listener
	config   *tls.Config // the gateway's
}

func newEnds(t testing.TB) *ends {
	t.Helper()
	e := &ends{twoPaths: newTwoPaths(t)}
	a := newAuthority(t)
	e.config = &tls.Config{RootCAs: a.pool, Certificates: []tls.Certificate{a.issue(t, "gw-1")}}
	e.collector.in(t, func() (err error) {
		e.listener, err = Listen(e.remote, &tls.Config{
			Certificates: []tls.Certificate{a.issue(t, "collector-1")}, ClientCAs: a.pool,
		}, Tuning{}, slog.New(slog.DiscardHandler))
		return err
	})
	t.Cleanup(func() { e.listener.Close() })
	return e
}

func (e *ends) dial(t testing.TB) *Conn {
	t.Helper()
	var c *Conn
	e.gateway.in(t, func() (err error) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		c, err = Dial(ctx, Options{Local: e.local, Remote: e.remote, TLS: e.config})
		return err
	})
	return c
}

func TestSuite(t *testing.T) {
	e := newEnds(t)
	carriertest.Suite(t, func(t *testing.T) (near, far uplink.Carrier, nearPeer, farPeer string) {
		near = e.dial(t)
		far, err := e.listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return near, far, "collector-1", "gw-1"
	})
}
