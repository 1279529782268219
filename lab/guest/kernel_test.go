package guest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestKernelPackage(t *testing.T) {
	tests := []struct{ name, record, want string }{
		{"meta package", "Package: linux-image-cloud-arm64\nVersion: 6.1\nDepends: linux-image-6.1.0-50-cloud-arm64 (= 6.1.176-1)\n", "linux-image-6.1.0-50-cloud-arm64"},
		{"among others", "Depends: kmod, linux-image-6.12.1-armmp, udev (>> 1)\n", "linux-image-6.12.1-armmp"},
		{"none", "Package: x\nDepends: libc6\n", ""},
		{"empty", "", ""},
	}
	for _, test := range tests {
		got, err := kernelPackage(test.record, "linux-image-test")
		if got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%s: got %q, %v, want %q", test.name, got, err, test.want)
		}
	}
}

func TestMirror(t *testing.T) {
	tests := []struct{ name, targets, want string }{
		{"the machine's", "http://security.example/debian bookworm-security main\nhttp://mirror.example/debian/ bookworm main\n", "http://mirror.example/debian/"},
		{"another component", "http://mirror.example/debian/ bookworm contrib\n", ""},
		{"a disc", "cdrom:[disc]/ bookworm main\n", ""},
		{"none", "", ""},
	}
	for _, test := range tests {
		if got := mirror(test.targets, "bookworm"); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

func TestOSRelease(t *testing.T) {
	id, codename := osRelease("PRETTY_NAME=\"Debian GNU/Linux\"\nVERSION_CODENAME=bookworm\nID=debian\n")
	if id != "debian" || codename != "bookworm" {
		t.Errorf("got %q and %q", id, codename)
	}
	if id, codename = osRelease("ID=\"ubuntu\"\n"); id != "ubuntu" || codename != "" {
		t.Errorf("got %q and %q", id, codename)
	}
}

// Two at a time fetch once: the second waits, and gives up with its context.
func TestLock(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := lock(ctx, file); !errors.Is(err, context.Canceled) {
		t.Errorf("a lock that is held: got %v, want %v", err, context.Canceled)
	}
	unlock()
	again, err := lock(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	again()
}

// A kernel that is in the cache is used whatever the machine has.
func TestKernelInCache(t *testing.T) {
	m, err := ARM64.machine()
	if err != nil {
		t.Fatal(err)
	}
	for _, modules := range []string{"lib/modules/6.1-test", "usr/lib/modules/6.1-test"} {
		cache := t.TempDir()
		dir := filepath.Join(cache, m.debian)
		for _, d := range []string{"boot", modules} {
			if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "boot/vmlinuz-6.1-test"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		k, err := findKernel(t.Context(), cache, m)
		if err != nil {
			t.Fatal(err)
		}
		if want := filepath.Join(dir, modules); k.modules != want {
			t.Errorf("modules: got %s, want %s", k.modules, want)
		}
	}
}
