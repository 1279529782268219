package guest

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	testDeps = `kernel/net/sctp/sctp.ko: kernel/net/ipv4/udp_tunnel.ko kernel/lib/libcrc32c.ko
kernel/net/ipv4/udp_tunnel.ko:
kernel/lib/libcrc32c.ko:
kernel/net/sctp/sctp-diag.ko.xz: kernel/net/sctp/sctp.ko kernel/net/ipv4/inet_diag.ko kernel/net/ipv4/udp_tunnel.ko kernel/lib/libcrc32c.ko
kernel/net/ipv4/inet_diag.ko:
kernel/a.ko: kernel/b.ko
kernel/b.ko: kernel/a.ko
`
	testBuiltin = "kernel/crypto/md5.ko\nkernel/drivers/net/veth.ko\n"
)

func testModules(t *testing.T) *modules {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"modules.dep": testDeps, "modules.builtin": testBuiltin} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m, err := readModules(dir)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestModulesOrder(t *testing.T) {
	m := testModules(t)
	tests := []struct {
		wanted []string
		want   string
		err    string
	}{
		{nil, "", ""},
		{[]string{"veth", "md5"}, "", ""},
		{[]string{"sctp"}, "udp_tunnel libcrc32c sctp", ""},
		{[]string{"sctp-diag", "sctp"}, "udp_tunnel libcrc32c sctp inet_diag sctp_diag", ""},
		{[]string{"sch_netem"}, "", "no module sch_netem"},
		{[]string{"a"}, "", "needs itself"},
	}
	for _, test := range tests {
		got, err := m.order(test.wanted)
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%v: got error %v, want %q", test.wanted, err, test.err)
			}
			continue
		}
		if err != nil || strings.Join(got, " ") != test.want {
			t.Errorf("%v: got %v, %v, want %s", test.wanted, got, err, test.want)
		}
	}
	if got := m.known([]string{"crc32c_generic", "sctp", "md5"}); !slices.Equal(got, []string{"sctp", "md5"}) {
		t.Errorf("known: got %v", got)
	}
}

// Newer packages have their modules compressed.
func TestModulesUnpack(t *testing.T) {
	m := testModules(t)
	want := []byte("a module\n")
	xz := []byte("\xfd\x37\x7a\x58\x5a\x00\x00\x04\xe6\xd6\xb4\x46\x02\x00\x21\x01\x16\x00\x00\x00\x74\x2f\xe5\xa3\x01\x00\x08\x61\x20\x6d\x6f\x64\x75\x6c\x65\x0a\x00\x00\x00\x00\xee\xed\xdf\x20\x35\xab\x88\x36\x00\x01\x21\x09\x6c\x18\xc5\xd5\x1f\xb6\xf3\x7d\x01\x00\x00\x00\x00\x04\x59\x5a")
	file := filepath.Join(m.dir, "kernel/net/sctp/sctp-diag.ko.xz")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, xz, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := m.read("sctp_diag")
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

func FuzzModules(f *testing.F) {
	f.Add(testDeps, testBuiltin, "sctp")
	f.Add("a.ko: a.ko\n", "", "a")
	f.Add("no colon", "\n", "")
	f.Fuzz(func(t *testing.T, deps, builtin, wanted string) {
		m := &modules{path: make(map[string]string), needs: make(map[string][]string), builtin: make(map[string]bool)}
		if m.parse(deps, builtin) != nil {
			return
		}
		names, err := m.order([]string{wanted})
		if err != nil {
			return
		}
		for i, name := range names {
			for _, need := range m.needs[name] {
				if !m.builtin[need] && !slices.Contains(names[:i], need) {
					t.Errorf("%s is loaded before %s, which it needs", name, need)
				}
			}
		}
	})
}
