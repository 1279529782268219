package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Init is a guest's first process. It makes the guest ready, runs the command,
// reports, and powers the guest off; it does not return. Elsewhere than in a
// guest it returns an error at once.
func Init() error {
	if os.Getpid() != 1 {
		return errors.New("run the guest: this is not its first process")
	}
	err := guest()
	if err != nil {
		// There may be no channel for reports; the console is there always.
		fmt.Fprintf(os.Stderr, "run the guest: %v\n", err)
	}
	unix.Sync()
	return unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

func guest() error {
	content, err := os.ReadFile(planPath)
	if err != nil {
		return err
	}
	var p plan
	if err := json.Unmarshal(content, &p); err != nil {
		return fmt.Errorf("read plan: %w", err)
	}
	// Some processors' kernels find no clock. Certificates need the right time.
	now := unix.NsecToTimeval(p.Time.UnixNano())
	if err := unix.Settimeofday(&now); err != nil {
		return fmt.Errorf("set the clock: %w", err)
	}
	if err := mount(); err != nil {
		return err
	}
	for _, file := range p.Modules {
		if err := load(file); err != nil {
			return err
		}
	}
	if err := loopback(); err != nil {
		return err
	}
	port, err := openPort()
	if err != nil {
		return err
	}
	defer port.Close()
	report := &lineWriter{w: port}
	last := lastDone
	if err := execute(p, report); err != nil {
		last = lastFailed + strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return report.finish(last)
}

// mount makes the kernel's file systems visible, and a place for data.
func mount() error {
	for _, m := range []struct{ kind, path string }{
		{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"},
		{"tmpfs", "/tmp"}, {"tmpfs", "/run"}, {"tmpfs", "/var"},
	} {
		if err := unix.Mount(m.kind, m.path, m.kind, 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mount %s at %s: %w", m.kind, m.path, err)
		}
	}
	// A kernel's complaints belong on the console when something is wrong.
	return os.WriteFile("/proc/sys/kernel/printk", []byte("4"), 0o644)
}

// load loads a module, and gives its memory as a file back.
func load(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("load module %s: %w", filepath.Base(file), err)
	}
	return os.Remove(file)
}

// loopback puts up the one device that every host has.
func loopback() error {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("put up lo: %w", err)
	}
	return nil
}

// openPort opens the channel for reports. It is there a moment after its driver.
func openPort() (*os.File, error) {
	const names = "/sys/class/virtio-ports/*/name"
	for end := time.Now().Add(10 * time.Second); ; {
		found, err := filepath.Glob(names)
		if err != nil {
			return nil, err
		}
		for _, file := range found {
			name, err := os.ReadFile(file)
			if err != nil || strings.TrimSpace(string(name)) != reportPort {
				continue
			}
			path := filepath.Join("/dev", filepath.Base(filepath.Dir(file)))
			// Blocking, so that a write is over only when QEMU has it.
			fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
			if err == nil {
				return os.NewFile(uintptr(fd), path), nil
			}
			if !errors.Is(err, unix.ENOENT) {
				return nil, fmt.Errorf("open %s: %w", path, err)
			}
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("find the channel for reports: no %s says %q", names, reportPort)
		}
		time.Sleep(time.Millisecond)
	}
}

// execute runs the command with its output as the report.
func execute(p plan, report io.Writer) error {
	cmd := exec.Command(p.Command[0], p.Command[1:]...)
	cmd.Dir = "/root"
	cmd.Env = append([]string{"PATH=/bin", "HOME=/root", "TMPDIR=/tmp", "SLUICE_GUEST=1"}, p.Env...)
	cmd.Stdout, cmd.Stderr = report, os.Stderr
	// A grandchild that still holds the output does not hold up the report.
	cmd.WaitDelay = time.Second
	return cmd.Run()
}

// lineWriter knows whether it is in the middle of a line.
type lineWriter struct {
	w    io.Writer
	open bool
}

// Write implements io.Writer.
func (l *lineWriter) Write(p []byte) (int, error) {
	if len(p) > 0 {
		l.open = p[len(p)-1] != '\n'
	}
	return l.w.Write(p)
}

// finish writes the last line, on a line of its own.
func (l *lineWriter) finish(last string) error {
	if l.open {
		last = "\n" + last
	}
	_, err := io.WriteString(l.w, last+"\n")
	return err
}
