package mqtt

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"sluice/atomicfile"
)

// topicsFile remembers the topics that the broker's session may be subscribed
// to: the session outlives a change of the configuration, and the broker cannot
// be asked. It is written before a topic is subscribed to, and again after
// others were given up. Empty: nothing is remembered.
type topicsFile string

// read returns the topics, sorted; none if there is no file yet.
func (f topicsFile) read() ([]string, error) {
	if f == "" {
		return nil, nil
	}
	data, err := os.ReadFile(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var topics []string
	if err == nil {
		err = json.Unmarshal(data, &topics)
	}
	if err != nil {
		return nil, fmt.Errorf("topics of the last session %s: %w", f, err)
	}
	return topics, nil
}

// write replaces the topics, if they are not was.
func (f topicsFile) write(topics, was []string) error {
	topics = slices.Sorted(slices.Values(topics))
	topics = slices.Compact(topics)
	if f == "" || slices.Equal(topics, was) {
		return nil
	}
	data, err := json.Marshal(topics)
	if err == nil {
		err = atomicfile.Write(string(f), append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("topics of this session %s: %w", f, err)
	}
	return nil
}
