package guest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// entry is one thing in an archive.
type entry struct {
	name    string
	mode    uint64
	content string
}

// unpack reads an archive as the kernel does.
func unpack(b []byte) ([]entry, error) {
	var entries []entry
	for at := 0; ; {
		const head = 110
		if at+head > len(b) || string(b[at:at+6]) != "070701" {
			return nil, fmt.Errorf("no header at %d of %d", at, len(b))
		}
		field := func(i int) int {
			n, err := strconv.ParseUint(string(b[at+6+8*i:at+14+8*i]), 16, 32)
			if err != nil {
				panic(err)
			}
			return int(n)
		}
		mode, size, nameSize := field(1), field(6), field(11)
		name := string(b[at+head : at+head+nameSize-1])
		data := (at + head + nameSize + 3) &^ 3
		if name == "TRAILER!!!" {
			return entries, nil
		}
		entries = append(entries, entry{name, uint64(mode), string(b[data : data+size])})
		at = (data + size + 3) &^ 3
	}
}

func TestArchive(t *testing.T) {
	file := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(file, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	a := NewArchive(&b)
	for _, err := range []error{
		a.Dir("/dev"), a.Bytes("/etc/hosts", []byte("localhost\n")), a.Dir("/etc"),
		a.File("/bin/program", file), a.Bytes("/bin/empty", nil), a.End(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	got, err := unpack(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	want := []entry{
		{"dev", modeDir, ""}, {"etc", modeDir, ""}, {"etc/hosts", modeFile, "localhost\n"},
		{"bin", modeDir, ""}, {"bin/program", modeFile, "12345"}, {"bin/empty", modeFile, ""},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if err := a.File("/bin", t.TempDir()); err == nil {
		t.Error("a folder was added as a file")
	}
}
