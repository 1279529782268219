package update

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"sluice/atomicfile"
)

// Trial is an update that was begun and is neither confirmed nor over. It is on
// disk before anything is installed, so that no system can start unwatched.
type Trial struct {
	From    string `json:"from"` // the slot of the system that installed it
	Boot    uint64 `json:"boot"` // in which boot
	Version string `json:"version"`
	// Silent says that no collector was configured then: that the gateway runs is
	// enough.
	Silent bool `json:"silent,omitempty"`
	// Failed is why the new system must not stay; empty as long as it may.
	Failed string `json:"failed,omitempty"`
}

// Result is how the last trial ended.
type Result struct {
	Version string    `json:"version"`
	OK      bool      `json:"ok"`
	At      time.Time `json:"at"`
	Reason  string    `json:"reason"`
}

// folder is where trial and result are kept, DATA_DIR/update.
type folder string

// errDamaged is returned when a file holds something else than it should.
var errDamaged = errors.New("damaged")

func (f folder) path(name string) string { return filepath.Join(string(f), name) }

// trial returns the trial that is under way; nil if there is none.
func (f folder) trial() (*Trial, error) { return read[Trial](f.path("trial.json")) }

// result returns how the last trial ended; nil if there was none.
func (f folder) result() (*Result, error) { return read[Result](f.path("result.json")) }

// begin makes t the trial that is under way.
func (f folder) begin(t Trial) error {
	if err := os.MkdirAll(string(f), 0o750); err != nil {
		return err
	}
	return write(f.path("trial.json"), t)
}

// end notes how the trial ended. After a cut of power in between it ends again.
func (f folder) end(r Result) error {
	if err := write(f.path("result.json"), r); err != nil {
		return err
	}
	return f.forget()
}

// forget removes the trial.
func (f folder) forget() error { return os.Remove(f.path("trial.json")) }

func write(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, append(data, '\n'))
}

// read returns what the file at path holds; nil if there is no file.
func read[T any](path string) (*T, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	v := new(T)
	if err := json.Unmarshal(data, v); err != nil {
		return nil, fmt.Errorf("read %s: %w: %w", path, errDamaged, err)
	}
	return v, nil
}
