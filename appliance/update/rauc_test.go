package update

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// signer makes bundles with a key of its own.
type signer struct{ cert, key string }

func newSigner(t *testing.T, name string) signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s := signer{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	writeFile(t, s.cert, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})))
	writeFile(t, s.key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
	return s
}

// bundle makes a bundle for a board.
func (s signer) bundle(t *testing.T, board, version string) string {
	t.Helper()
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "bundle.raucb")
	writeFile(t, filepath.Join(dir, "rootfs.squashfs"), string(content(100_000))) // a bundle must not become too small
	writeFile(t, filepath.Join(dir, "manifest.raucm"),
		"[update]\ncompatible="+board+"\nversion="+version+"\n[bundle]\nformat=verity\n[image.rootfs]\nfilename=rootfs.squashfs\n")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "rauc", "bundle", "--cert="+s.cert, "--key="+s.key, dir, file).CombinedOutput(); err != nil {
		t.Fatalf("rauc bundle: %v\n%s", err, out)
	}
	return file
}

// system writes the configuration of a machine that trusts s.
func (s signer) system(t *testing.T, board string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "system.conf")
	writeFile(t, file, "[system]\ncompatible="+board+"\nbootloader=noop\n[keyring]\npath="+s.cert+"\n"+
		"[slot.rootfs.0]\ndevice=/dev/null\ntype=raw\nbootname=A\n[slot.rootfs.1]\ndevice=/dev/null\ntype=raw\nbootname=B\n")
	return file
}

// TestInfo asks the real program about bundles.
func TestInfo(t *testing.T) {
	for _, program := range []string{"rauc", "mksquashfs"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%s is needed: apt-get install rauc squashfs-tools", program)
		}
	}
	maker, other := newSigner(t, "maker"), newSigner(t, "other")
	r := Rauc{Config: maker.system(t, "sluice-board")}
	good := maker.bundle(t, "sluice-board", "1.2.3")
	b, err := r.Info(t.Context(), good)
	if want := (Bundle{Compatible: "sluice-board", Version: "1.2.3"}); err != nil || b != want {
		t.Errorf("got %v and %v, want %v", b, err, want)
	}
	whole, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	cut, text := filepath.Join(t.TempDir(), "cut"), filepath.Join(t.TempDir(), "text")
	writeFile(t, cut, string(whole[:len(whole)/2]))
	writeFile(t, text, strings.Repeat("<html>\n", 1000))
	for _, test := range []struct{ name, file, want string }{
		{"another key", other.bundle(t, "sluice-board", "1.2.3"), "rauc info: wrong signature: "},
		{"half of it", cut, "this is no bundle, or not a whole one"},
		{"a page", text, "this is no bundle, or not a whole one"},
		{"nothing", cut + "-not", "No such file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := r.Info(t.Context(), test.file); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestRaucFails(t *testing.T) {
	for _, test := range []struct {
		name   string
		answer answer
		want   string
	}{
		{"no space", answer{Err: "LastError: Installation error: Failed updating slot rootfs.1: failed to write: No space left on device\nrauc-Message: 14:01:28: bye\n", Code: 1}, "rauc install: no space: "},
		{"another board", answer{Out: "  0% Installing\n", Err: "LastError: Compatible mismatch: Expected 'sluice-pi4' but bundle manifest has 'sluice-pi3'\n", Code: 1}, "(LastError: Compatible mismatch: Expected 'sluice-pi4'"},
		{"too early", answer{Err: "signature verification failed: Verify error: certificate is not yet valid\n", Code: 1}, "wait until this machine's clock is set"},
		{"too late", answer{Err: "signature verification failed: Verify error: certificate has expired\n", Code: 1}, "has expired"},
		{"unknown", answer{Err: "Something new\nrauc-Message: 14:01:28: bye\n", Code: 1}, "rauc install: Something new"},
		{"silent", answer{Code: 3}, "rauc install: exit status 3"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFakeRauc(t, map[string]answer{"install": test.answer})
			if err := f.Install(t.Context(), "b", func(string) {}); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestRaucIsStopped(t *testing.T) {
	f := newFakeRauc(t, map[string]answer{"install": {Out: "  0% Installing\n", Hang: true}})
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	if err := f.Install(ctx, "b", func(string) { cancel(why) }); !errors.Is(err, why) {
		t.Errorf("got %v, want %v", err, why)
	}
}

func TestNoRauc(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if err := (Rauc{}).MarkGood(t.Context()); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("got %v, want %v", err, exec.ErrNotFound)
	}
}

// TestOutput checks that what is kept of a talkative program has a limit.
func TestOutput(t *testing.T) {
	lines := 0
	o := &output{line: func(string) { lines++ }}
	for range 10000 {
		if _, err := o.Write([]byte("half a line, and the other\nhalf")); err != nil {
			t.Fatal(err)
		}
	}
	if lines != 10000 || len(o.kept) > maxOutput || !strings.HasSuffix(string(o.kept), "the other\nhalf") {
		t.Errorf("got %d lines and %d bytes that end in %q", lines, len(o.kept), o.kept[len(o.kept)-20:])
	}
}
