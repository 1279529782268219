package guest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
)

// Archive writes a file system for the kernel's initramfs: cpio in the format
// "newc", described in the kernel's driver-api/early-userspace/buffer-format. It
// is not compressed: an emulated processor unpacks more slowly than it copies.
type Archive struct {
	w    *bufio.Writer
	n    int64 // bytes written
	dirs map[string]bool
	last uint32 // inode number given
}

// NewArchive returns an archive that is written to w. It is whole after End.
func NewArchive(w io.Writer) *Archive {
	return &Archive{w: bufio.NewWriterSize(w, 1<<20), dirs: map[string]bool{"": true}}
}

// The kinds and modes of what an archive holds.
const (
	modeDir  = 0o040755
	modeFile = 0o100755
)

// Dir adds a folder and those above it, unless they are there.
func (a *Archive) Dir(name string) error {
	name = strings.Trim(path.Clean("/"+name), "/")
	if a.dirs[name] {
		return nil
	}
	if parent := path.Dir("/" + name); parent != "/" {
		if err := a.Dir(parent); err != nil {
			return err
		}
	}
	a.dirs[name] = true
	return a.header(name, modeDir, 0)
}

// Bytes adds a file.
func (a *Archive) Bytes(name string, content []byte) error {
	return a.reader(name, strings.NewReader(string(content)), int64(len(content)))
}

// File adds a file of this machine.
func (a *Archive) File(name, from string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("add %s: it is not a file", from)
	}
	return a.reader(name, f, info.Size())
}

func (a *Archive) reader(name string, r io.Reader, size int64) error {
	name = strings.Trim(path.Clean("/"+name), "/")
	const most = 1<<32 - 1 // of eight hexadecimal digits
	if size > most {
		return fmt.Errorf("add %s: %d bytes are more than the format can hold", name, size)
	}
	if err := a.Dir(path.Dir("/" + name)); err != nil {
		return err
	}
	if err := a.header(name, modeFile, size); err != nil {
		return err
	}
	n, err := io.Copy(a.w, r)
	a.n += n
	if err != nil {
		return err
	}
	if n != size {
		return fmt.Errorf("add %s: it changed while it was read", name)
	}
	return a.pad()
}

func (a *Archive) header(name string, mode uint32, size int64) error {
	a.last++
	const magic, links = "070701", 1
	n, err := fmt.Fprintf(a.w, "%s%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		magic, a.last, mode, 0, 0, links, 0, size, 0, 0, 0, 0, len(name)+1, 0, name)
	a.n += int64(n)
	if err != nil {
		return err
	}
	return a.pad()
}

// pad fills up to the format's unit.
func (a *Archive) pad() error {
	n, err := a.w.Write(make([]byte, -a.n&3))
	a.n += int64(n)
	return err
}

// End finishes the archive.
func (a *Archive) End() error {
	if err := a.header("TRAILER!!!", 0, 0); err != nil {
		return err
	}
	return a.w.Flush()
}
