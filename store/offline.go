package store

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"sluice/reading"
)

// maxProblems bounds a Report's list.
const maxProblems = 100

// Report is what Check found.
type Report struct {
	Epoch uint64
	Lanes [reading.Lanes]LaneReport
	// Problems are the first hundred faults, in words; empty means that the file
	// is whole. Count is how many there are.
	Problems []string
	Count    int
	SetAside int // values set aside as damaged, of which the store knows
	Files    []string
}

// LaneReport is what Check counted in a lane.
type LaneReport struct {
	Segments int
	Readings uint64
	Bytes    uint64
	First    uint64 // sequence number of the first reading, 0 if there is none
	Last     uint64
}

func (r *Report) problem(format string, args ...any) {
	r.Count++
	if len(r.Problems) < maxProblems {
		r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
	}
}

// openOffline opens a store's file that no gateway has open.
func openOffline(path string) (pageFile, func(), error) {
	// A name that is mistyped must not leave a lock file behind.
	if _, err := os.Stat(path); err != nil {
		return pageFile{}, nil, err
	}
	lock, err := lockFile(path, false)
	if err != nil {
		return pageFile{}, nil, err
	}
	f, file, err := openPages(path)
	if err != nil {
		lock.Close()
		return pageFile{}, nil, err
	}
	return f, func() { file.Close(); lock.Close() }, nil
}

// Check reads the whole file at path: every page, every value's checksum and
// encoding, and whether the counters agree. The error is for a file that cannot
// be looked at; what is wrong inside is in the Report. Nothing is changed.
func Check(path string) (Report, error) {
	f, done, err := openOffline(path)
	if err != nil {
		return Report{}, fmt.Errorf("check store %s: %w", path, err)
	}
	defer done()
	found := find(f)
	r := Report{Files: setAsideFiles(path), SetAside: found.aside}
	for _, err := range found.damage {
		r.problem("%v", err)
	}
	r.Count = found.damages
	if found.failed > 0 {
		r.problem("%d values fail their checksum", found.failed)
	}
	if found.state == nil {
		r.problem("no state: epoch and counters are lost")
	} else {
		r.Epoch = found.state.epoch
	}
	for _, p := range found.pieces {
		if !p.tree {
			continue
		}
		lane := &r.Lanes[p.lane]
		if lane.First == 0 {
			lane.First = p.first
		}
		lane.Segments++
		lane.Readings += uint64(p.count)
		lane.Bytes += uint64(p.size)
		lane.Last = p.last()
		if r.Epoch != 0 && p.epoch != r.Epoch {
			r.problem("lane %v, %d: belongs to another store", p.lane, p.first)
		}
		if rs, err := found.readings(p); err != nil {
			r.problem("lane %v, %d: %v", p.lane, p.first, err)
		} else if len(rs) != p.count {
			r.problem("lane %v, %d: %d readings, %d expected", p.lane, p.first, len(rs), p.count)
		}
	}
	if found.state != nil && found.failed == 0 && found.damages == 0 {
		for l, lane := range found.state.lanes {
			got := r.Lanes[l]
			// A damaged value may have lied about how many readings went with it.
			if got.Bytes != lane.bytes || got.Readings != lane.readings && found.state.damaged == 0 {
				r.problem("lane %v: %d readings in %d bytes, the counters say %d in %d",
					reading.Lane(l), got.Readings, got.Bytes, lane.readings, lane.bytes)
			}
			if got.Last >= lane.next {
				r.problem("lane %v: reading %d is there, but the next number is %d", reading.Lane(l), got.Last, lane.next)
			}
		}
	}
	return r, nil
}

// readings decodes a piece.
func (f *findings) readings(p piece) ([]reading.Reading, error) {
	b := make([]byte, p.size)
	if err := f.f.read(b, p.off); err != nil {
		return nil, err
	}
	return reading.DecodeBatch(b[valueHeader:])
}

// Stat says what the file at path holds, without reading the readings: lanes,
// epoch, sizes and what was set aside.
func Stat(path string) (Stats, error) {
	f, done, err := openOffline(path)
	if err != nil {
		return Stats{}, fmt.Errorf("stat store %s: %w", path, err)
	}
	defer done()
	st, used, err := f.survey()
	if err != nil {
		return Stats{}, fmt.Errorf("stat store %s: %w", path, err)
	}
	out := Stats{Epoch: st.epoch, Damaged: st.damaged, FileBytes: f.size, UsedBytes: int64(used) * pageSize}
	for l, lane := range st.lanes {
		out.Lanes[l] = LaneStats{Readings: lane.readings, Bytes: lane.bytes, Next: lane.next, Acked: lane.acked, Removed: lane.removed}
	}
	if files := setAsideFiles(path); len(files) > 0 {
		out.SetAside = files[len(files)-1]
	}
	return out, nil
}

// exported is a line that Export writes.
type exported struct {
	Lane     string   `json:"lane"`
	Sequence uint64   `json:"seq"`
	Device   string   `json:"device"`
	Name     string   `json:"name"`
	Unit     string   `json:"unit,omitempty"`
	Value    any      `json:"value,omitempty"`
	Bytes    *string  `json:"bytes,omitempty"` // base64url, instead of value
	Time     string   `json:"time"`
	Quality  string   `json:"quality"`
	Boot     uint64   `json:"boot,omitempty"`
	Mono     int64    `json:"mono,omitempty"`
	Flags    []string `json:"flags,omitempty"`
	Stored   string   `json:"stored"`
}

// Export writes every reading in the file at path as a line of JSON, lane by
// lane in order; numbers keep their digits. A damaged file gives what can be
// read of it, also from pages that its tree has lost, and then an error that says
// what is missing.
func Export(path string, w io.Writer) error {
	f, done, err := openOffline(path)
	if err != nil {
		return fmt.Errorf("export store %s: %w", path, err)
	}
	defer done()
	found := find(f)
	acked := found.acked(found.epoch(nil))
	out := bufio.NewWriterSize(w, 64<<10)
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)
	unread := found.failed
	for _, p := range found.pieces {
		if p.last() <= acked[p.lane] {
			continue
		}
		rs, err := found.readings(p)
		if err != nil {
			unread++
			continue
		}
		for i := range rs {
			if err := lines.Encode(export(p, i, &rs[i])); err != nil {
				return fmt.Errorf("export store %s: %w", path, err)
			}
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("export store %s: %w", path, err)
	}
	if found.damages > 0 || unread > 0 {
		first := "values fail their checksum"
		if len(found.damage) > 0 {
			first = found.damage[0].Error()
		}
		return fmt.Errorf("export store %s: %d faults in pages, %d values unreadable, the first: %s: %w", path, found.damages, unread, first, errDamaged)
	}
	return nil
}

func export(p piece, i int, r *reading.Reading) exported {
	e := exported{
		Lane: p.lane.String(), Sequence: p.first + uint64(i),
		Device: r.Device, Name: r.Name, Unit: r.Unit,
		Time:    time.Unix(0, r.Time.Wall).UTC().Format(time.RFC3339Nano),
		Quality: [...]string{"synchronised", "from-device", "unsynchronised"}[min(r.Time.Quality, reading.Unsynchronised)],
		Boot:    r.Time.Boot, Mono: r.Time.Mono,
		Stored: time.Unix(0, p.stored).UTC().Format(time.RFC3339Nano),
	}
	switch r.Value.Kind() {
	case reading.KindNull:
		e.Value = json.RawMessage("null")
	case reading.KindBool:
		e.Value = r.Value.IsTrue()
	case reading.KindNumber:
		e.Value = json.RawMessage(r.Value.Raw())
	case reading.KindText:
		e.Value = r.Value.Raw()
	case reading.KindBytes:
		s := r.Value.String()
		e.Bytes = &s
	}
	for bit, name := range [...]string{"invalid", "retained", "raw"} {
		if r.Flags&(1<<bit) != 0 {
			e.Flags = append(e.Flags, name)
		}
	}
	return e
}
