package guest

import (
	"context"
	"fmt"
	"path/filepath"
)

// Kernel is a kernel of Debian's, for images that are booted otherwise than by
// Run.
type Kernel struct {
	Image   string // file
	Release string // as uname -r prints it
	mods    *modules
}

// Module is a module of a kernel.
type Module struct {
	Path    string // below /lib/modules/RELEASE, without the ending of a compression
	Content []byte // unpacked
}

// FindKernel returns the kernel of an architecture from the cache, fetched if
// there is none yet.
func FindKernel(ctx context.Context, arch Arch, cache string) (Kernel, error) {
	m, err := arch.machine()
	if err != nil {
		return Kernel{}, fmt.Errorf("find kernel: %w", err)
	}
	k, err := findKernel(ctx, cache, m)
	if err != nil {
		return Kernel{}, err
	}
	mods, err := readModules(k.modules)
	if err != nil {
		return Kernel{}, err
	}
	return Kernel{Image: k.image, Release: filepath.Base(k.modules), mods: mods}, nil
}

// Modules returns the modules of these names, each after those that it needs. What
// is built in is left out.
func (k Kernel) Modules(names ...string) ([]Module, error) {
	order, err := k.mods.order(append(k.mods.known(silent()), names...))
	if err != nil {
		return nil, fmt.Errorf("find modules of %s: %w", k.Release, err)
	}
	var all []Module
	for _, name := range order {
		content, err := k.mods.read(name)
		if err != nil {
			return nil, err
		}
		file := k.mods.path[name]
		all = append(all, Module{Path: file[:len(file)-len(filepath.Ext(file))] + ending(file), Content: content})
	}
	return all, nil
}

// ending is that of an unpacked module's file.
func ending(file string) string {
	if filepath.Ext(file) == ".ko" {
		return ".ko"
	}
	return ""
}
