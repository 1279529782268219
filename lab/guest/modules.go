package guest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// modules is the index of a kernel's modules.
type modules struct {
	dir     string              // that the paths below are relative to
	path    map[string]string   // by name
	needs   map[string][]string // names, all that a module needs, by its name
	builtin map[string]bool
}

// readModules reads the index that depmod has left in a folder.
func readModules(dir string) (*modules, error) {
	m := &modules{dir: dir, path: make(map[string]string), needs: make(map[string][]string), builtin: make(map[string]bool)}
	deps, err := os.ReadFile(filepath.Join(dir, "modules.dep"))
	if errors.Is(err, fs.ErrNotExist) {
		// A package leaves it to its installation, which there is none of.
		if out, err := exec.Command(depmod(), "-b", filepath.Join(dir, "../../.."), filepath.Base(dir)).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("index the modules in %s (depmod is in Debian's package kmod): %w\n%s", dir, err, out)
		}
		deps, err = os.ReadFile(filepath.Join(dir, "modules.dep"))
	}
	if err != nil {
		return nil, fmt.Errorf("read the index of modules: %w", err)
	}
	builtin, err := os.ReadFile(filepath.Join(dir, "modules.builtin"))
	if err != nil {
		return nil, fmt.Errorf("read the index of modules: %w", err)
	}
	if err := m.parse(string(deps), string(builtin)); err != nil {
		return nil, fmt.Errorf("read the index of modules in %s: %w", dir, err)
	}
	return m, nil
}

// depmod is the program's path: only root's PATH has its folder.
func depmod() string {
	if path, err := exec.LookPath("depmod"); err == nil {
		return path
	}
	return "/sbin/depmod"
}

// parse takes the content of modules.dep, lines "path: path path", and of
// modules.builtin, lines "path".
func (m *modules) parse(deps, builtin string) error {
	for line := range strings.Lines(deps) {
		file, needs, found := strings.Cut(strings.TrimSpace(line), ":")
		if !found {
			return fmt.Errorf("line %q has no colon", line)
		}
		name := moduleName(file)
		m.path[name] = file
		for need := range strings.FieldsSeq(needs) {
			m.needs[name] = append(m.needs[name], moduleName(need))
		}
	}
	for line := range strings.Lines(builtin) {
		m.builtin[moduleName(strings.TrimSpace(line))] = true
	}
	return nil
}

// moduleName is the name of the module in a file, by which the kernel knows it.
func moduleName(file string) string {
	name, _, _ := strings.Cut(path.Base(file), ".")
	return strings.ReplaceAll(name, "-", "_")
}

// order returns the modules to load for those wanted, each after what it needs.
// What is built in is left out.
func (m *modules) order(wanted []string) ([]string, error) {
	var names []string
	var add func(name string, above []string) error
	add = func(name string, above []string) error {
		if m.builtin[name] || slices.Contains(names, name) {
			return nil
		}
		if m.path[name] == "" {
			return fmt.Errorf("the kernel has no module %s", name)
		}
		if slices.Contains(above, name) {
			return fmt.Errorf("module %s needs itself", name)
		}
		for _, need := range m.needs[name] {
			if err := add(need, append(above[:len(above):len(above)], name)); err != nil {
				return err
			}
		}
		names = append(names, name)
		return nil
	}
	for _, name := range wanted {
		if err := add(strings.ReplaceAll(name, "-", "_"), nil); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// known returns those modules that the kernel has as files or built in.
func (m *modules) known(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return m.path[name] == "" && !m.builtin[name] })
}

// read returns the content of a module's file, unpacked.
func (m *modules) read(name string) ([]byte, error) {
	file := filepath.Join(m.dir, filepath.FromSlash(m.path[name]))
	var unpack *exec.Cmd
	switch filepath.Ext(file) {
	case ".xz":
		unpack = exec.Command("xz", "-dc", file)
	case ".zst":
		unpack = exec.Command("zstd", "-dcq", file)
	case ".gz":
		unpack = exec.Command("gzip", "-dc", file)
	default:
		return os.ReadFile(file)
	}
	var complaint bytes.Buffer
	unpack.Stderr = &complaint
	out, err := unpack.Output()
	if err != nil {
		return nil, fmt.Errorf("unpack %s with %s: %w\n%s", file, unpack.Args[0], err, complaint.Bytes())
	}
	return out, nil
}
