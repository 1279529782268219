package jsonl

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const suffix = ".jsonl"

// file is a stream's newest file. The zero file is a stream that has none.
type file struct {
	path string
	size int64  // synced bytes, all of them whole lines
	last uint64 // sequence number of the last line
}

func fileName(epoch, first uint64) string {
	return fmt.Sprintf("%016x-%020d%s", epoch, first, suffix)
}

// newest finds the newest file of epoch in folder, cuts off what a crash left
// unfinished at its end, and syncs it: lines that were never synced count from
// now on.
func newest(folder string, epoch uint64) (file, error) {
	paths, err := ofEpoch(folder, epoch)
	if err != nil {
		return file{}, err
	}
	for _, path := range slices.Backward(paths) {
		f, err := mend(path)
		if err != nil {
			return file{}, err
		}
		if f.last > 0 {
			return f, nil
		}
		// Created, but the machine stopped before its first line was whole.
		if err := os.Remove(path); err != nil {
			return file{}, err
		}
	}
	return file{}, nil
}

// ofEpoch lists the files of epoch, oldest first.
func ofEpoch(folder string, epoch uint64) ([]string, error) {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var paths []string
	prefix := fmt.Sprintf("%016x-", epoch)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) && strings.HasSuffix(e.Name(), suffix) {
			paths = append(paths, filepath.Join(folder, e.Name()))
		}
	}
	return paths, nil
}

// mend reads the end of one file and cuts it after its last good line. A line
// that was never finished is dropped. If more than that goes, whole lines may be
// among it, and it is kept beside the file.
func mend(path string) (file, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return file{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return file{}, err
	}
	good, last, err := lastGoodLine(f, info.Size())
	if err != nil {
		return file{}, err
	}
	if good < info.Size() {
		if err := setAside(f, good, info.Size()); err != nil {
			return file{}, err
		}
		if err := f.Truncate(good); err != nil {
			return file{}, err
		}
	}
	if err := f.Sync(); err != nil {
		return file{}, err
	}
	return file{path: path, size: good, last: last}, nil
}

// setAside copies what f holds from byte start to end into a file of the same
// name with ".damaged" behind it, unless it is one unfinished line.
func setAside(f *os.File, start, end int64) error {
	spoilt := make([]byte, end-start)
	if _, err := f.ReadAt(spoilt, start); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if bytes.IndexByte(spoilt, '\n') < 0 {
		return nil
	}
	w, err := os.OpenFile(f.Name()+".damaged", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o640)
	if err != nil {
		return err
	}
	_, err = w.Write(spoilt)
	return errors.Join(err, w.Sync(), w.Close(), syncDir(filepath.Dir(f.Name())))
}

// lastGoodLine returns the length of the file up to the last line before the
// first bad one, and that line's last sequence number; both are 0 if there is
// none. It looks at the part that a crash can have spoilt; if no line in it is
// good, or a line is longer than it, at more.
func lastGoodLine(r io.ReaderAt, size int64) (end int64, last uint64, err error) {
	for window := int64(2 * chunkBytes); ; window *= 4 {
		start := max(0, size-window)
		tail := make([]byte, size-start)
		if _, err := r.ReadAt(tail, start); err != nil && !errors.Is(err, io.EOF) {
			return 0, 0, err
		}
		offset := start
		if start > 0 {
			// The window begins within a line.
			cut := bytes.IndexByte(tail, '\n') + 1
			tail, offset = tail[cut:], start+int64(cut)
		}
		for {
			line, rest, found := bytes.Cut(tail, []byte{'\n'})
			first, lineLast, ok := lineRange(line)
			if !found || !ok || first <= last {
				break
			}
			last = lineLast
			offset += int64(len(line)) + 1
			tail = rest
		}
		if last > 0 || start == 0 {
			if last == 0 {
				offset = 0
			}
			return offset, last, nil
		}
	}
}

// create makes an empty file and makes its name durable.
func create(folder string, epoch, first uint64) (file, error) {
	if err := makeDir(folder); err != nil {
		return file{}, err
	}
	path := filepath.Join(folder, fileName(epoch, first))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o640)
	if err != nil {
		return file{}, err
	}
	if err := errors.Join(f.Sync(), f.Close(), syncDir(folder)); err != nil {
		return file{}, err
	}
	return file{path: path}, nil
}

// prune removes the oldest files of a folder beyond keep: first those of other
// epochs, which are of stores that are no more.
func prune(folder string, epoch uint64, keep int) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	current := fmt.Sprintf("%016x-", epoch)
	var others, own []string
	for _, e := range entries {
		switch {
		case !strings.HasSuffix(e.Name(), suffix):
		case strings.HasPrefix(e.Name(), current):
			own = append(own, e.Name())
		default:
			others = append(others, e.Name())
		}
	}
	all := append(others, own...)
	for _, name := range all[:max(0, len(all)-keep)] {
		if err := os.Remove(filepath.Join(folder, name)); err != nil {
			return err
		}
	}
	return nil
}

// appender adds lines to a file and syncs them.
type appender struct {
	file
	last uint64 // of the lines in buf
	buf  []byte
	f    *os.File
}

func (f file) appender() (*appender, error) {
	w, err := os.OpenFile(f.path, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	return &appender{file: f, f: w}, nil
}

// flush makes the lines in buf durable. If it cannot, it takes back what it has
// written of them: the system may believe that pages are on disk that are not.
func (w *appender) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	_, err := w.f.WriteAt(w.buf, w.size)
	if err == nil {
		err = w.f.Sync()
	}
	if err != nil {
		return errors.Join(err, w.f.Truncate(w.size))
	}
	w.size += int64(len(w.buf))
	w.file.last = w.last
	w.buf = w.buf[:0]
	return nil
}

func (w *appender) close() { w.f.Close() }

// makeDir creates dir and its parents and makes their names durable.
func makeDir(dir string) error {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := makeDir(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o750); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return syncDir(parent)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
