package paths

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
)

// confDir holds a folder an interface, by the network namespace of who looks.
const confDir = "/proc/sys/net/ipv4/conf"

// filters switches the reverse-path filters of uplinks off (IPv4 has them, IPv6
// does not). They ask the routing tables, without the mark of the answer's socket,
// whether a packet has come by the right interface; even the loose form drops what
// comes by an uplink while no other default route is left.
type filters struct {
	log       *slog.Logger
	off       map[string]filter // by interface
	inherited bool              // a process before this one may have switched some off
	warned    bool
}

// filter is what a filter was before.
type filter struct {
	index int
	value string
}

// takenOver says that there are leftovers of a process that could not clean up.
func (f *filters) takenOver() {
	if f.off == nil {
		f.inherited = true
	}
}

func (f *filters) relax(paths []Path) error {
	if f.off == nil {
		f.off = map[string]filter{}
	}
	var errs []error
	for _, path := range paths {
		if path.Index == 0 || f.off[path.Name].index == path.Index {
			continue
		}
		before, err := readFilter(path.Name)
		if before == "0" && f.inherited {
			before, err = readFilter("default") // as good as anything
		}
		if err == nil && before != "0" {
			err = writeFilter(path.Name, "0")
		}
		switch {
		case errors.Is(err, fs.ErrNotExist): // gone meanwhile
		case err != nil:
			errs = append(errs, fmt.Errorf("switch reverse-path filter of %s off: %w", path.Name, err))
		default:
			f.off[path.Name] = filter{index: path.Index, value: before}
		}
	}
	// The stricter of the two applies.
	if all, err := readFilter("all"); err == nil && all != "0" && !f.warned {
		f.warned = true
		f.log.Warn("net.ipv4.conf.all.rp_filter is on: packets that come by an uplink may be dropped; set it to 0, and those of single interfaces instead",
			"value", all)
	}
	return errors.Join(errs...)
}

// restore sets the filters that are still as relax left them to what they were.
func (f *filters) restore() error {
	var errs []error
	for name, before := range f.off {
		now, err := readFilter(name)
		if err == nil && now == "0" && before.value != "0" {
			err = writeFilter(name, before.value)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("restore reverse-path filter of %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func readFilter(name string) (string, error) {
	b, err := os.ReadFile(filepath.Join(confDir, name, "rp_filter"))
	return strings.TrimSpace(string(b)), err
}

func writeFilter(name, value string) error {
	return os.WriteFile(filepath.Join(confDir, name, "rp_filter"), []byte(value), 0o644)
}
