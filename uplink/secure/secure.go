// Package secure is what all carriers share: TLS 1.3 with a certificate at both
// ends, and a listener that shakes hands with many peers at once.
package secure

import (
	"crypto/tls"
	"fmt"
)

// Config returns a copy of a TLS configuration with what every carrier needs.
func Config(c *tls.Config) *tls.Config {
	c = c.Clone()
	c.MinVersion = tls.VersionTLS13
	// Frames are written whole: small records would only add bytes.
	c.DynamicRecordSizingDisabled = true
	return c
}

// Peer is the common name in the other end's certificate, once the handshake is
// done.
func Peer(c *tls.Conn) (string, error) {
	certs := c.ConnectionState().PeerCertificates
	if len(certs) == 0 || certs[0].Subject.CommonName == "" {
		return "", fmt.Errorf("certificate of %s: no common name: issue one that names the peer", c.RemoteAddr())
	}
	return certs[0].Subject.CommonName, nil
}
