package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// runCommand runs one command and returns its exit status and output.
func runCommand(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = run(t.Context(), args, &out, &errs)
	return status, out.String(), errs.String()
}

func mustRun(t *testing.T, args ...string) string {
	t.Helper()
	status, stdout, stderr := runCommand(t, args...)
	if status != 0 {
		t.Fatalf("%v: exit status %d\n%s%s", args, status, stdout, stderr)
	}
	return stdout
}

func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]string)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != 0o600 {
			t.Errorf("%s: got mode %o, want 600", e.Name(), got)
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = string(data)
	}
	return files
}

func TestKeysAreMadeOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	mustRun(t, "keys", "--dir", dir, "--gateway", "gw-1", "--host", "collector.example.org", "--host", "192.0.2.1")
	first := contents(t, dir)
	for _, name := range []string{"ca.crt", "ca.key", "collector.crt", "collector.key", "gw-1.crt", "gw-1.key"} {
		if first[name] == "" {
			t.Errorf("%s was not made", name)
		}
	}
	mustRun(t, "keys", "--dir", dir, "--gateway", "gw-1", "--gateway", "gw-2", "--host", "collector.example.org")
	second := contents(t, dir)
	for name, want := range first {
		if second[name] != want {
			t.Errorf("%s was changed", name)
		}
	}
	if len(second) != len(first)+2 {
		t.Errorf("got %d files, want %d", len(second), len(first)+2)
	}
}

// The certificates do their job: both ends verify each other, by name.
func TestKeysShakeHands(t *testing.T) {
	dir := t.TempDir()
	mustRun(t, "keys", "--dir", dir, "--gateway", "gw-1", "--host", "collector.example.org")
	pool := x509.NewCertPool()
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	pool.AppendCertsFromPEM(ca)
	load := func(name string) []tls.Certificate {
		c, err := tls.LoadX509KeyPair(filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key"))
		if err != nil {
			t.Fatal(err)
		}
		return []tls.Certificate{c}
	}
	// F15: the gateway's clock was never set since the image was built.
	past := func() time.Time { return time.Date(2021, 1, 1, 0, 0, 0, 0, time.UTC) }
	near, far := net.Pipe()
	server := tls.Server(far, &tls.Config{Certificates: load("collector"), ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert})
	client := tls.Client(near, &tls.Config{Certificates: load("gw-1"), RootCAs: pool, ServerName: "collector.example.org", Time: past})
	done := make(chan error, 1)
	go func() { done <- server.HandshakeContext(t.Context()) }()
	if err := client.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := server.ConnectionState().PeerCertificates[0].Subject.CommonName; got != "gw-1" {
		t.Fatalf("gateway's name: got %q, want %q", got, "gw-1")
	}
}

func TestKeysRefuse(t *testing.T) {
	made := func(t *testing.T) string {
		dir := t.TempDir()
		mustRun(t, "keys", "--dir", dir, "--gateway", "gw-1", "--host", "a.example.org")
		return dir
	}
	remove := func(t *testing.T, dir, name string) {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name   string
		args   func(t *testing.T) []string
		status int
		want   string
	}{
		{"no folder", func(t *testing.T) []string { return nil }, 2, "--dir is missing"},
		{"no host", func(t *testing.T) []string { return []string{"--dir", t.TempDir()} }, 1, "--host"},
		{"a gateway called collector", func(t *testing.T) []string { return []string{"--dir", made(t), "--gateway", "collector"} }, 1, "choose another"},
		{"a path as gateway", func(t *testing.T) []string { return []string{"--dir", made(t), "--gateway", "../x"} }, 1, "letters, digits"},
		{"a URL as host", func(t *testing.T) []string { return []string{"--dir", t.TempDir(), "--host", "tls://x:1"} }, 1, "name or an address alone"},
		{"another host", func(t *testing.T) []string { return []string{"--dir", made(t), "--host", "b.example.org"} }, 1, "not for b.example.org"},
		{"the authority's key is elsewhere", func(t *testing.T) []string {
			dir := made(t)
			remove(t, dir, "ca.key")
			return []string{"--dir", dir, "--gateway", "gw-2"}
		}, 1, "put it back to add certificates"},
		{"a key is gone", func(t *testing.T) []string {
			dir := made(t)
			remove(t, dir, "gw-1.key")
			return []string{"--dir", dir, "--gateway", "gw-1"}
		}, 1, "put it back, or remove the certificate"},
		{"a certificate is spoilt", func(t *testing.T) []string {
			dir := made(t)
			if err := os.WriteFile(filepath.Join(dir, "gw-1.crt"), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
			return []string{"--dir", dir, "--gateway", "gw-1"}
		}, 1, "gw-1.crt"},
	} {
		t.Run(test.name, func(t *testing.T) {
			status, _, stderr := runCommand(t, append([]string{"keys"}, test.args(t)...)...)
			if status != test.status || !strings.Contains(stderr, test.want) {
				t.Fatalf("got exit status %d and %q, want %d and %q", status, stderr, test.status, test.want)
			}
		})
	}
}

// Power fails between the two files of a pair.
func TestKeysAfterACrash(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"ca.key", "gw-1.key"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mustRun(t, "keys", "--dir", dir, "--gateway", "gw-1", "--host", "a.example.org")
	if _, err := tls.LoadX509KeyPair(filepath.Join(dir, "gw-1.crt"), filepath.Join(dir, "gw-1.key")); err != nil {
		t.Fatal(err)
	}
}
