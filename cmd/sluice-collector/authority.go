package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"sluice/atomicfile"
)

const (
	authorityName = "ca"
	collectorName = "collector"

	authorityYears = 30
	leafYears      = 10
)

// notBefore is when every certificate begins to be valid: a gateway whose clock
// has not been set yet is to trust one that was made today.
var notBefore = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// errNoHost is returned for a collector's certificate without a name.
var errNoHost = errors.New("certificate without a host")

// pair are the files of a certificate and its private key, both PEM.
type pair struct{ cert, key string }

func pairIn(dir, name string) pair {
	return pair{cert: filepath.Join(dir, name+".crt"), key: filepath.Join(dir, name+".key")}
}

func (p pair) certificate() (*x509.Certificate, error) {
	data, err := os.ReadFile(p.cert)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, fmt.Errorf("%s: no certificate in it", p.cert)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.cert, err)
	}
	return cert, nil
}

// authority signs certificates.
type authority struct {
	files pair
	cert  *x509.Certificate
	key   any // nil if it is kept elsewhere: then nothing new can be signed
}

// openAuthority reads the authority in dir, or makes one.
func openAuthority(dir string, now time.Time) (a *authority, made bool, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, false, err
	}
	a = &authority{files: pairIn(dir, authorityName)}
	if exists(a.files.cert) {
		if a.cert, err = a.files.certificate(); err != nil {
			return nil, false, err
		}
		if exists(a.files.key) {
			loaded, err := tls.LoadX509KeyPair(a.files.cert, a.files.key)
			if err != nil {
				return nil, false, fmt.Errorf("%s and %s: %w", a.files.cert, a.files.key, err)
			}
			a.key = loaded.PrivateKey
		}
		return a, false, nil
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "Sluice authority"},
		NotBefore:             notBefore,
		NotAfter:              now.AddDate(authorityYears, 0, 0),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	if err := a.sign(a.files, template); err != nil {
		return nil, false, err
	}
	if a.cert, err = a.files.certificate(); err != nil {
		return nil, false, err
	}
	return a, true, nil
}

// collectorTemplate is a server's certificate for hosts.
func collectorTemplate(hosts []string) *x509.Certificate {
	t := &x509.Certificate{
		Subject:     pkix.Name{CommonName: collectorName},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, host)
		}
	}
	return t
}

// gatewayTemplate is a client's certificate whose common name is the gateway.
func gatewayTemplate(id string) *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: id},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}

// ensure makes the files of p from template unless they are there.
func (a *authority) ensure(p pair, template *x509.Certificate, now time.Time) (made bool, err error) {
	if exists(p.cert) {
		if !exists(p.key) {
			return false, fmt.Errorf("%s is there, but its key %s is not: put it back, or remove the certificate", p.cert, p.key)
		}
		if _, err := tls.LoadX509KeyPair(p.cert, p.key); err != nil {
			return false, fmt.Errorf("%s and %s: %w", p.cert, p.key, err)
		}
		return false, nil
	}
	if a.key == nil {
		return false, fmt.Errorf("sign %s: %s is not there: put it back to add certificates", p.cert, a.files.key)
	}
	server := template.ExtKeyUsage[0] == x509.ExtKeyUsageServerAuth
	if server && len(template.DNSNames)+len(template.IPAddresses) == 0 {
		return false, errNoHost
	}
	template.NotBefore = notBefore
	template.NotAfter = now.AddDate(leafYears, 0, 0)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.BasicConstraintsValid = true
	return true, a.sign(p, template)
}

// sign makes a key and a certificate for it. The certificate is written last: a
// key without one is of no use to anybody and is made anew.
func (a *authority) sign(p pair, template *x509.Certificate) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make %s: %w", p.key, err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return fmt.Errorf("make %s: %w", p.cert, err)
	}
	parent, signer := a.cert, a.key
	if template.IsCA {
		parent, signer = template, key
		a.key = key
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return fmt.Errorf("make %s: %w", p.cert, err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("make %s: %w", p.key, err)
	}
	if err := atomicfile.Write(p.key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})); err != nil {
		return err
	}
	return atomicfile.Write(p.cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
