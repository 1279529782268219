package guest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Options describe a guest and what runs in it.
type Options struct {
	Arch    Arch
	Cache   string            // folder for kernels; it is made
	Init    string            // a static program for Arch that calls Init, sluice-lab
	Files   map[string]string // files of this machine by their path in the guest
	Command []string          // path in the guest, and arguments
	Env     []string          // the command's, beside PATH, HOME and SLUICE_GUEST=1
	Modules []string          // of the kernel, beside those that every guest has
	Memory  int               // MB; 0 for 1024
	Timeout time.Duration     // from QEMU's start; 0 for five minutes
}

// ErrNoQEMU is returned when the emulator is not installed.
var ErrNoQEMU = errors.New("QEMU is not installed")

// Run starts a guest, runs the command in it and hands each line that the command
// prints to standard output to line, until the command has ended; line must not
// keep the bytes. What the command prints to standard error goes to the console.
//
// The error is nil if the command exited with 0. Otherwise it holds the console's
// tail, and how QEMU was called.
func Run(ctx context.Context, o Options, line func([]byte)) error {
	m, err := o.Arch.machine()
	if err != nil {
		return fmt.Errorf("run a guest: %w", err)
	}
	qemu, err := exec.LookPath(m.qemu)
	if err != nil {
		return fmt.Errorf("run a guest: %w: apt-get install %s", ErrNoQEMU, m.packages)
	}
	k, err := findKernel(ctx, o.Cache, m)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "sluice-guest-")
	if err != nil {
		return fmt.Errorf("run a guest: %w", err)
	}
	defer os.RemoveAll(dir)
	root := filepath.Join(dir, "root.cpio")
	if err := writeRoot(root, k, m, o); err != nil {
		return fmt.Errorf("make the root file system of a guest: %w", err)
	}
	if o.Memory == 0 {
		o.Memory = 1024
	}
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Minute
	}
	console := filepath.Join(dir, "console")
	args := append(slices.Clone(m.args),
		// By emulation, whatever the machine could do. The guest's time is counted in
		// instructions, two nanoseconds each, and leaps over idleness: what is measured
		// in a guest does not depend on how fast this machine is and what else it
		// does. That takes a single processor.
		"-accel", "tcg,thread=single", "-icount", "shift=1,align=off,sleep=off", "-smp", "1", "-m", strconv.Itoa(o.Memory),
		"-nodefaults", "-display", "none", "-monitor", "none", "-no-reboot",
		"-serial", "file:"+console, "-chardev", "stdio,id=report,signal=off",
		"-kernel", k.image, "-initrd", root,
		// The kernel ends QEMU when it panics. Time on an emulated PC is the TSC's,
		// which a kernel that compares it with slower timers would give up.
		"-append", "console="+m.console+" quiet panic=-1 net.ifnames=0 tsc=reliable rdinit=/init -- "+initArgument,
	)
	ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout, fmt.Errorf("time is up after %v", o.Timeout))
	defer cancel()
	if err := emulate(ctx, exec.CommandContext(ctx, qemu, args...), line); err != nil {
		return fmt.Errorf("run %s in a guest: %w\nQEMU: %s %s\nconsole:\n%s", strings.Join(o.Command, " "), err, qemu, strings.Join(args, " "), tail(console))
	}
	return nil
}

// emulate runs QEMU and hands out what the guest reports, up to the last line.
func emulate(ctx context.Context, cmd *exec.Cmd, line func([]byte)) error {
	// A child dies with the thread that started it; this one stays.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = Attributes()
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	// A channel whose input has ended counts as closed, and takes no reports.
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	defer in.Close()
	if err := cmd.Start(); err != nil {
		return err
	}
	last, readErr := readReport(out, line)
	if readErr != nil {
		// Nobody empties the channel any more.
		cmd.Process.Kill()
	}
	waitErr := cmd.Wait()
	why, failed := strings.CutPrefix(last, lastFailed)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case readErr != nil:
		return fmt.Errorf("read what the guest reports: %w", readErr)
	case failed:
		return errors.New(why)
	case waitErr != nil:
		return fmt.Errorf("QEMU: %w: %s", waitErr, strings.TrimSpace(complaints.String()))
	case last != lastDone:
		return fmt.Errorf("the guest ended before its command did; its last line was %q", last)
	}
	return nil
}

// longest is how long a line of a report may be, in bytes.
const longest = 16 << 20

// readReport hands out all lines but the last, and returns that.
func readReport(r io.Reader, line func([]byte)) (last string, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, longest)
	for first := true; lines.Scan(); first = false {
		if !first {
			line([]byte(last))
		}
		last = lines.Text()
	}
	return last, lines.Err()
}

// tail returns the end of a file.
func tail(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	const keep = 6 << 10
	return strings.ReplaceAll(strings.TrimSpace(string(b[max(0, len(b)-keep):])), "\r", "")
}

// writeRoot writes the guest's root file system.
func writeRoot(path string, k kernel, m machine, o Options) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	mods, err := readModules(k.modules)
	if err != nil {
		return err
	}
	names, err := mods.order(slices.Concat(mods.known(silent()), m.modules, common(), o.Modules))
	if err != nil {
		return err
	}
	a := NewArchive(f)
	for _, dir := range []string{"/bin", "/dev", "/proc", "/root", "/run", "/sys", "/tmp", "/var"} {
		if err := a.Dir(dir); err != nil {
			return err
		}
	}
	p := plan{Command: o.Command, Env: o.Env, Time: time.Now()}
	for _, name := range names {
		content, err := mods.read(name)
		if err != nil {
			return err
		}
		file := modulesDir + "/" + name
		if err := a.Bytes(file, content); err != nil {
			return err
		}
		p.Modules = append(p.Modules, file)
	}
	if err := a.Bytes("/etc/hosts", []byte("127.0.0.1 localhost\n")); err != nil {
		return err
	}
	if err := a.File("/init", o.Init); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(o.Files)) {
		if err := a.File(name, o.Files[name]); err != nil {
			return err
		}
	}
	content, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := a.Bytes(planPath, content); err != nil {
		return err
	}
	return a.End()
}
