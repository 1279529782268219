package image

import (
	"encoding/binary"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestBuild reads an image back with the tools that others check such partitions
// with.
func TestBuild(t *testing.T) {
	if testing.Short() {
		t.Skip("the image takes Debian's packages: run without -short")
	}
	dir := t.TempDir()
	// What is in the program does not matter here.
	program := filepath.Join(dir, "sluice")
	if err := os.WriteFile(program, []byte("sluice"), 0o755); err != nil {
		t.Fatal(err)
	}
	disk := filepath.Join(dir, "disk")
	o := Options{Cache: "../../var/lab", Sluice: program, FAT: map[string][]byte{"sluice.toml": []byte("version = 1\n"), "certs/ca.crt": []byte("a")}}
	if err := Build(t.Context(), disk, o); err != nil {
		t.Fatal(err)
	}
	parts := make([]string, 4)
	for i, p := range partitions() {
		parts[i] = filepath.Join(dir, "part") + string(rune('1'+i))
		cut(t, disk, parts[i], p)
	}
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"fsck.vfat", "-n", parts[0]}, nil},
		{[]string{"mdir", "-b", "-/", "-i", parts[0], "::"}, []string{"/boot.scr", "/sluice.toml", "/README.txt", "/certs/ca.crt", "/A/vmlinuz", "/B/initrd"}},
		{[]string{"unsquashfs", "-l", parts[1]}, []string{"/bin/sluice", "/boot/vmlinuz", "/etc/inittab", "/etc/init.d/rcS", "/sctp.ko", "/lib/libc.so.6"}},
		{[]string{"unsquashfs", "-l", parts[2]}, []string{"/bin/sluice"}},
		{[]string{"e2fsck", "-fn", parts[3]}, []string{"sluice-data"}},
	} {
		out, err := exec.CommandContext(t.Context(), c.args[0], c.args[1:]...).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", c.args[0], err, out)
		}
		for _, want := range c.want {
			if !strings.Contains(string(out), want) {
				t.Errorf("%s shows no %s:\n%s", strings.Join(c.args, " "), want, out)
			}
		}
	}
	info, err := os.Stat(disk)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the image has %d MiB", info.Size()/mib)
}

// cut writes a partition to a file of its own.
func cut(t *testing.T, disk, to string, p partition) {
	t.Helper()
	in, err := os.Open(disk)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if _, err := io.Copy(out, io.NewSectionReader(in, p.start, p.size)); err != nil {
		t.Fatal(err)
	}
}

// The partitions lie one after the other and end with the disk.
func TestBootRecord(t *testing.T) {
	b := bootRecord()
	at := uint32(fatStart / 512)
	for i := range partitions() {
		e := b[446+16*i:]
		start, size := binary.LittleEndian.Uint32(e[8:]), binary.LittleEndian.Uint32(e[12:])
		if start != at {
			t.Errorf("partition %d starts at sector %d, want %d", i+1, start, at)
		}
		at = start + size
	}
	if at != diskSize/512 {
		t.Errorf("the partitions end at sector %d, the disk has %d", at, diskSize/512)
	}
}
