package broker

import (
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

const (
	hashScheme = "pbkdf2-sha256"
	// hashIterations takes about 20 ms on a PC and some 0.3 s on the smallest
	// board; a user's first connection after a start waits for it.
	hashIterations = 50_000
	// hashIterationsMaximum bounds what a configured hash may cost.
	hashIterationsMaximum = 2_000_000
	saltSize              = 16
)

// passwordHash is a parsed password hash.
type passwordHash struct {
	iterations int
	salt, key  []byte
}

// HashPassword returns what User.PasswordHash takes, with a random salt:
// "pbkdf2-sha256$ITERATIONS$SALT$KEY", salt and 32-byte key in base64 without
// padding (PBKDF2 of RFC 8018, 5.2, with HMAC-SHA-256).
func HashPassword(password string) (string, error) {
	salt := make([]byte, saltSize)
	if _, err := rand.Read(salt); err != nil {
		return "", fmt.Errorf("password salt: %w", err)
	}
	key, err := pbkdf2.Key(sha256.New, password, salt, hashIterations, sha256.Size)
	if err != nil {
		return "", fmt.Errorf("password hash: %w", err)
	}
	return strings.Join([]string{
		hashScheme,
		strconv.Itoa(hashIterations),
		base64.RawStdEncoding.EncodeToString(salt),
		base64.RawStdEncoding.EncodeToString(key),
	}, "$"), nil
}

// parsePasswordHash reads what HashPassword wrote.
func parsePasswordHash(s string) (*passwordHash, error) {
	wrong := func(what string) error {
		return errors.New("password hash: " + what + "; make one with the hash-password command")
	}
	parts := strings.Split(s, "$")
	if len(parts) != 4 || parts[0] != hashScheme {
		return nil, wrong("not of the form " + hashScheme + "$ITERATIONS$SALT$KEY")
	}
	n, err := strconv.Atoi(parts[1])
	if err != nil || n < 1 || n > hashIterationsMaximum {
		return nil, wrong(fmt.Sprintf("iterations %q not from 1 to %d", parts[1], hashIterationsMaximum))
	}
	salt, err := base64.RawStdEncoding.DecodeString(parts[2])
	if err != nil || len(salt) < 8 || len(salt) > 64 {
		return nil, wrong("salt is not 8 to 64 bytes of base64")
	}
	key, err := base64.RawStdEncoding.DecodeString(parts[3])
	if err != nil || len(key) != sha256.Size {
		return nil, wrong("key is not 32 bytes of base64")
	}
	return &passwordHash{n, salt, key}, nil
}

// matches takes as long as its iterations ask for.
func (h *passwordHash) matches(password []byte) bool {
	key, err := pbkdf2.Key(sha256.New, string(password), h.salt, h.iterations, len(h.key))
	return err == nil && subtle.ConstantTimeCompare(key, h.key) == 1
}
