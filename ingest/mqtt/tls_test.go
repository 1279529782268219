package mqtt

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"
)

// authority signs the certificates of one test.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t}
	a.cert, a.key = a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "test authority"},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// sign makes a key and a certificate for it, by the authority or, the first,
// by itself.
func (a *authority) sign(c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c.SerialNumber = big.NewInt(time.Now().UnixNano())
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

func encode(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// Both ends prove who they are; a stranger on either end is refused.
func TestTLS(t *testing.T) {
	b, a := newBroker(t), newAuthority(t)
	b.kill()
	server, serverKey := a.sign(&x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	der, err := x509.MarshalPKCS8PrivateKey(serverKey)
	if err != nil {
		t.Fatal(err)
	}
	b.write("ca.pem", encode("CERTIFICATE", a.cert.Raw))
	b.write("cert.pem", encode("CERTIFICATE", server.Raw))
	b.write("key.pem", encode("PRIVATE KEY", der))
	b.configure(fmt.Sprintf("cafile %[1]s/ca.pem\ncertfile %[1]s/cert.pem\nkeyfile %[1]s/key.pem\nrequire_certificate true\n", b.dir))
	b.start()

	client, clientKey := a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "gateway"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	trusting := &tls.Config{RootCAs: x509.NewCertPool(),
		Certificates: []tls.Certificate{{Certificate: [][]byte{client.Raw}, PrivateKey: clientKey}}}
	trusting.RootCAs.AddCert(a.cert)
	over := func(c *tls.Config) func(*Options) {
		return func(o *Options) { o.URL, o.TLS = "tls://"+b.address(), c }
	}

	c, stop := run(t, b, new(sink), over(trusting))
	subscribed(t, c, 1)
	stop()
	await(t, "the broker sees a clean end", func() bool { return b.log.count("Client sluice-test disconnected") == 1 })

	stranger := &tls.Config{RootCAs: x509.NewCertPool(), Certificates: trusting.Certificates}
	c, stop = run(t, b, new(sink), over(stranger))
	await(t, "the broker is refused", func() bool { return strings.Contains(c.Stats().LastError, "unknown authority") })
	stop()
	nameless := &tls.Config{RootCAs: trusting.RootCAs}
	c, stop = run(t, b, new(sink), over(nameless))
	await(t, "the client is refused", func() bool { return strings.Contains(c.Stats().LastError, "certificate required") })
	stop()
}
