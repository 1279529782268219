package flow

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// tail follows the collector's files of JSON lines and accounts for each
// reading of a Backlog.
type tail struct {
	dir   string
	files map[string]*tailFile
	last  map[string]uint64 // sequence number of the last line, by folder

	seen  []bool // whether each reading of the backlog came
	count int    // how many of them
	// faults are how many lines were out of sequence, came again or are no
	// reading of the backlog.
	faults int
}

type tailFile struct {
	at   int64  // bytes read
	rest []byte // the beginning of a line
}

func newTail(dir string, readings int) *tail {
	return &tail{dir: dir, files: make(map[string]*tailFile), last: make(map[string]uint64), seen: make([]bool, readings)}
}

// advance reads what was added since the last call and returns its payload in
// bytes.
func (t *tail) advance() (int, error) {
	paths, err := t.paths()
	if err != nil {
		return 0, fmt.Errorf("follow the output: %w", err)
	}
	sum := 0
	for _, path := range paths {
		n, err := t.read(path)
		if err != nil {
			return sum, fmt.Errorf("follow the output: %w", err)
		}
		sum += n
	}
	return sum, nil
}

// paths lists the output's files, older ones first: those of a gateway's lane
// share a folder, and their names sort by sequence number.
func (t *tail) paths() ([]string, error) {
	var paths []string
	err := filepath.WalkDir(t.dir, func(path string, entry os.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil // nothing has come yet
		}
		if err == nil && entry.Type().IsRegular() && filepath.Ext(path) == ".jsonl" {
			paths = append(paths, path)
		}
		return err
	})
	return paths, err
}

func (t *tail) read(path string) (int, error) {
	file := t.files[path]
	if file == nil {
		file = &tailFile{}
		t.files[path] = file
	}
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.NewSectionReader(f, file.at, math.MaxInt64-file.at))
	if err != nil {
		return 0, err
	}
	file.at += int64(len(b))
	b = append(file.rest, b...)
	sum := 0
	for {
		line, rest, whole := bytes.Cut(b, []byte{'\n'})
		if !whole {
			break
		}
		sum += t.take(filepath.Dir(path), line)
		b = rest
	}
	file.rest = slices.Clone(b)
	return sum, nil
}

// take accounts for one line of a lane's folder and returns its payload, 0 for
// one that should not have come.
func (t *tail) take(lane string, line []byte) int {
	sequence, number, err := parseLine(line)
	if err != nil {
		t.faults++
		return 0
	}
	before, known := t.last[lane]
	t.last[lane] = sequence
	switch {
	case number >= uint64(len(t.seen)), t.seen[number]:
		t.faults++
		return 0
	case known && sequence != before+1:
		t.faults++
	}
	t.seen[number] = true
	t.count++
	return readingBytes
}

// errLine is returned for a line that is no reading of a Backlog.
var errLine = errors.New("not a reading of the backlog")

// parseLine reads a line's sequence number and the number of its reading.
func parseLine(line []byte) (sequence, number uint64, err error) {
	line, found := bytes.CutPrefix(line, []byte(`{"seq":`))
	digits, _, comma := bytes.Cut(line, []byte{','})
	_, data, bytesFound := bytes.Cut(line, []byte(`"bytes":"`))
	const letters = 12 // nine bytes, the first eight of which are the number
	if !found || !comma || !bytesFound || len(data) < letters {
		return 0, 0, errLine
	}
	if sequence, err = strconv.ParseUint(string(digits), 10, 64); err != nil {
		return 0, 0, errLine
	}
	var b [9]byte
	if _, err := base64.RawURLEncoding.Decode(b[:], data[:letters]); err != nil {
		return 0, 0, errLine
	}
	return sequence, binary.BigEndian.Uint64(b[:]), nil
}
