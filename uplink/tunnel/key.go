package tunnel

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"

	"sluice/atomicfile"
)

// key is one of WireGuard's, private or public. As text it is base64, as wg(8)
// writes it.
type key [32]byte

func newKey() (key, error) {
	private, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return key{}, fmt.Errorf("make key: %w", err)
	}
	k := key(private.Bytes())
	// The kernel stores keys with these bits set (RFC 7748, section 5), and wg
	// then shows what the file holds.
	k[0] &= 248
	k[31] = k[31]&127 | 64
	return k, nil
}

// public is the key that belongs to the private key k.
func (k key) public() (key, error) {
	private, err := ecdh.X25519().NewPrivateKey(k[:])
	if err != nil {
		return key{}, err
	}
	return key(private.PublicKey().Bytes()), nil
}

// String implements fmt.Stringer.
func (k key) String() string { return base64.StdEncoding.EncodeToString(k[:]) }

// MarshalText implements encoding.TextMarshaler.
func (k key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *key) UnmarshalText(text []byte) error {
	b, err := base64.StdEncoding.DecodeString(string(text))
	if err == nil && len(b) != len(k) {
		err = fmt.Errorf("%d bytes, want %d", len(b), len(k))
	}
	if err != nil {
		return fmt.Errorf("key: %w", err)
	}
	copy(k[:], b)
	return nil
}

// openKey reads the private key at path, and makes it if there is none.
func openKey(path string) (key, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		k, err := newKey()
		if err == nil {
			err = atomicfile.Write(path, []byte(k.String()+"\n"))
		}
		return k, err
	}
	if err != nil {
		return key{}, err
	}
	var k key
	if err := k.UnmarshalText([]byte(strings.TrimSpace(string(text)))); err != nil {
		return key{}, fmt.Errorf("read %s: %w: restore it, or remove it and a new one is made", path, err)
	}
	return k, nil
}
