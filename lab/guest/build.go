package guest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// Build compiles programs for guests of an architecture with the go command,
// into files of their packages' last names in a folder. It is called from
// anywhere in the module.
func Build(ctx context.Context, arch Arch, dir string, packages ...string) error {
	return compile(ctx, arch, append([]string{"build", "-trimpath", "-ldflags", "-s -w", "-o", dir + string(os.PathSeparator)}, packages...))
}

// BuildTest compiles the tests of a package for guests of an architecture into a
// file.
func BuildTest(ctx context.Context, arch Arch, file, pkg string) error {
	return compile(ctx, arch, []string{"test", "-c", "-trimpath", "-ldflags", "-s -w", "-o", file, pkg})
}

func compile(ctx context.Context, arch Arch, args []string) error {
	m, err := arch.machine()
	if err != nil {
		return fmt.Errorf("build for a guest: %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	// Static, since the guest has no libraries.
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOFLAGS="), m.build...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build for a guest: %s: %w\n%s", cmd, errors.Join(err, ctx.Err()), out)
	}
	return nil
}
