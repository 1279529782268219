package guest

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// kernel is a kernel of Debian's on this machine.
type kernel struct {
	image   string // file
	modules string // folder with modules.dep
}

// archiveVariable in the environment is the address of a mirror of Debian's
// archive, for machines whose apt knows none.
const archiveVariable = "DEBIAN_ARCHIVE"

// archiveKeys is where Debian's package debian-archive-keyring puts the keys.
const archiveKeys = "/usr/share/keyrings/debian-archive-keyring.gpg"

// fetchTime is how long downloading a kernel may take.
const fetchTime = 10 * time.Minute

// findKernel returns the kernel of an architecture from the cache. If there is
// none yet, it is fetched from Debian's archive, once, whoever asks at the same
// time.
func findKernel(ctx context.Context, cache string, m machine) (kernel, error) {
	meta := func(ctx context.Context, a apt) ([]string, error) {
		name, err := a.dependency(ctx, m.kernel)
		return []string{name}, err
	}
	whole := func(dir string) error {
		_, err := kernelIn(dir)
		return err
	}
	dir, err := unpacked(ctx, cache, m.debian, m, meta, whole)
	if err != nil {
		return kernel{}, fmt.Errorf("find kernel for %s: %w\n%s", m.debian, err, byHand(dir, m))
	}
	return kernelIn(dir)
}

// Packages unpacks packages of Debian's for an architecture into one folder of the
// cache, once for the same packages, and returns that. What the packages need is
// not added.
func Packages(ctx context.Context, arch Arch, cache string, packages ...string) (dir string, err error) {
	m, err := arch.machine()
	if err != nil {
		return "", fmt.Errorf("unpack packages: %w", err)
	}
	name := fmt.Sprintf("%s-%08x", m.debian, crc32.ChecksumIEEE([]byte(strings.Join(packages, " "))))
	named := func(context.Context, apt) ([]string, error) { return packages, nil }
	whole := func(dir string) error {
		_, err := os.Stat(dir)
		return err
	}
	dir, err = unpacked(ctx, cache, name, m, named, whole)
	if err != nil {
		return "", fmt.Errorf("unpack %s for %s: %w", strings.Join(packages, ", "), m.debian, err)
	}
	return dir, nil
}

// unpacked returns the folder of the cache with what is chosen of Debian's
// archive. It is fetched unless it is there whole.
func unpacked(ctx context.Context, cache, name string, m machine, choose func(context.Context, apt) ([]string, error), whole func(dir string) error) (dir string, err error) {
	cache, err = filepath.Abs(cache)
	if err != nil {
		return "", err
	}
	dir = filepath.Join(cache, name)
	if whole(dir) == nil {
		return dir, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return dir, err
	}
	unlock, err := lock(ctx, dir+".lock")
	if err != nil {
		return dir, err
	}
	defer unlock()
	if whole(dir) == nil {
		return dir, nil
	}
	return dir, fetch(ctx, dir, m, choose, whole)
}

// byHand says how to do without apt.
func byHand(dir string, m machine) string {
	return fmt.Sprintf("to do it by hand, unpack the package that %s of Debian depends on: dpkg-deb -x linux-image-..._%s.deb %s", m.kernel, m.debian, dir)
}

// kernelIn finds the kernel in the unpacked package.
func kernelIn(dir string) (kernel, error) {
	find := func(patterns ...string) (string, error) {
		for _, p := range patterns {
			if found, _ := filepath.Glob(filepath.Join(dir, p)); len(found) > 0 {
				return found[0], nil
			}
		}
		return "", fmt.Errorf("find kernel: there is no %s in %s", patterns[0], dir)
	}
	image, err := find("boot/vmlinu*")
	if err != nil {
		return kernel{}, err
	}
	modules, err := find("lib/modules/*", "usr/lib/modules/*")
	if err != nil {
		return kernel{}, err
	}
	return kernel{image: image, modules: modules}, nil
}

// lock holds a file for this process alone and returns how to let it go.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			// Closing lets it go.
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		t := time.NewTimer(100 * time.Millisecond)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			f.Close()
			return nil, fmt.Errorf("lock %s, which another process holds: %w", path, ctx.Err())
		}
	}
}

// fetch downloads the packages that are chosen, as they are current in Debian's
// archive, and unpacks them into dir, which appears whole or not at all.
//
// apt keeps what it knows of this architecture in a folder of its own. So the
// machine's apt is not changed, and an index of another archive that cannot be
// had does not matter.
func fetch(ctx context.Context, dir string, m machine, choose func(context.Context, apt) ([]string, error), whole func(dir string) error) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	for _, tool := range []string{"apt-get", "apt-cache", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is missing on this %s: the lab takes kernels from Debian's archive with apt", tool, runtime.GOOS)
		}
	}
	if _, err := os.Stat(archiveKeys); err != nil {
		return fmt.Errorf("the keys of Debian's archive are missing; run: apt-get install debian-archive-keyring (%w)", err)
	}
	work, err := os.MkdirTemp(filepath.Dir(dir), m.debian+"-fetch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	a := apt{work: work, arch: m.debian}
	if err := a.setUp(ctx); err != nil {
		return err
	}
	if _, err := a.run(ctx, "apt-get", "update", "-qq"); err != nil {
		return err
	}
	names, err := choose(ctx, a)
	if err != nil {
		return err
	}
	if _, err := a.run(ctx, "apt-get", append([]string{"download", "-qq"}, names...)...); err != nil {
		return err
	}
	unpacked := filepath.Join(work, "unpacked")
	for _, name := range names {
		files, err := filepath.Glob(filepath.Join(work, name+"_*.deb"))
		if err != nil || len(files) != 1 {
			return fmt.Errorf("download %s: got the files %q, want one", name, files)
		}
		if out, err := exec.CommandContext(ctx, "dpkg-deb", "-x", files[0], unpacked).CombinedOutput(); err != nil {
			return fmt.Errorf("unpack %s: %w\n%s", filepath.Base(files[0]), err, out)
		}
	}
	if err := whole(unpacked); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.Rename(unpacked, dir)
}

// apt is Debian's package manager with a state of its own.
type apt struct {
	work, arch string
}

// setUp makes the folders and says where packages come from: the archive and the
// release of this machine if it is a Debian, else the stable release of the
// archive in archiveVariable.
func (a apt) setUp(ctx context.Context) error {
	for _, dir := range []string{"lists/partial", "cache/archives/partial", "state", "etc"} {
		if err := os.MkdirAll(filepath.Join(a.work, dir), 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(a.work, "state/status"), nil, 0o644); err != nil {
		return err
	}
	release, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return err
	}
	url, suite := os.Getenv(archiveVariable), "stable"
	if id, codename := osRelease(string(release)); id == "debian" && codename != "" {
		suite = codename
		out, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Identifier: Packages").Output()
		if err != nil {
			return fmt.Errorf("ask apt for its archives: %w", err)
		}
		if known := mirror(string(out), suite); known != "" {
			url = known
		}
	}
	if url == "" {
		return fmt.Errorf("apt on this machine knows no archive of Debian's: put the address of a mirror, as debian.org lists them, into the environment as %s", archiveVariable)
	}
	line := fmt.Sprintf("deb [signed-by=%s] %s %s main\n", archiveKeys, url, suite)
	return os.WriteFile(filepath.Join(a.work, "etc/sources.list"), []byte(line), 0o644)
}

// osRelease returns the system's name and its release's from /etc/os-release.
func osRelease(text string) (id, codename string) {
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		value = strings.Trim(value, `"'`)
		switch key {
		case "ID":
			id = value
		case "VERSION_CODENAME":
			codename = value
		}
	}
	return id, codename
}

// mirror returns from where apt takes the main packages of a release: the first
// of its targets, lines "URL release component"; empty if there is none.
func mirror(targets, suite string) string {
	for line := range strings.Lines(targets) {
		if f := strings.Fields(line); len(f) == 3 && f[1] == suite && f[2] == "main" && strings.HasPrefix(f[0], "http") {
			return f[0]
		}
	}
	return ""
}

// run runs one of apt's programs on the state of its own, in its folder.
func (a apt) run(ctx context.Context, program string, args ...string) (string, error) {
	options := []string{
		"-o", "Dir::Etc::sourcelist=" + filepath.Join(a.work, "etc/sources.list"),
		"-o", "Dir::Etc::sourceparts=/dev/null",
		"-o", "Dir::Etc::preferencesparts=/dev/null",
		"-o", "Dir::State=" + filepath.Join(a.work, "state"),
		"-o", "Dir::State::lists=" + filepath.Join(a.work, "lists"),
		"-o", "Dir::State::status=" + filepath.Join(a.work, "state/status"),
		"-o", "Dir::Cache=" + filepath.Join(a.work, "cache"),
		"-o", "APT::Architecture=" + a.arch,
		"-o", "APT::Architectures=" + a.arch,
		"-o", "Acquire::Languages=none",
		"-o", "Acquire::Retries=3",
		// The folder may be where only root can read.
		"-o", "APT::Sandbox::User=root",
	}
	cmd := exec.CommandContext(ctx, program, append(options, args...)...)
	cmd.Dir = a.work
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var out, complaints strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", program, strings.Join(args, " "), errors.Join(err, ctx.Err()), strings.TrimSpace(complaints.String()))
	}
	return out.String(), nil
}

// dependency returns the package that a kernel's meta package stands for.
func (a apt) dependency(ctx context.Context, meta string) (string, error) {
	out, err := a.run(ctx, "apt-cache", "show", "--no-all-versions", meta)
	if err != nil {
		return "", err
	}
	return kernelPackage(out, meta)
}

// kernelPackage finds the kernel among the dependencies of a package's record.
func kernelPackage(record, meta string) (string, error) {
	for line := range strings.Lines(record) {
		depends, found := strings.CutPrefix(line, "Depends: ")
		if !found {
			continue
		}
		for dependency := range strings.SplitSeq(depends, ",") {
			name, _, _ := strings.Cut(strings.TrimSpace(dependency), " ")
			if strings.HasPrefix(name, "linux-image-") {
				return name, nil
			}
		}
	}
	return "", fmt.Errorf("the package %s depends on no linux-image", meta)
}
