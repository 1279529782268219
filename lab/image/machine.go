package image

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"sluice/lab/guest"
)

// firmware is where Debian's package u-boot-qemu puts U-Boot.
const firmware = "/usr/lib/u-boot/qemu_arm64/u-boot.bin"

// MachineOptions describe a machine that an image is booted on.
type MachineOptions struct {
	Disk  string   // the image; the machine writes to it
	Cards []string // of the network, as QEMU's -netdev wants them, without an id
	Off   []int    // cards without a link until Link gives them one
	Clock string   // at the start, "1970-01-01T00:00:00"; empty for this machine's
}

// Machine is a running machine. Its clock is this machine's.
type Machine struct {
	cmd     *exec.Cmd
	monitor string // socket
	start   time.Time
	done    chan struct{}
	mu      sync.Mutex
	lines   []Line
	more    chan struct{} // closed when there is another line
	err     error         // why it ended; read after done
	errors  strings.Builder
}

// Line is what was printed on the console, and how long after QEMU's start.
type Line struct {
	After time.Duration
	Text  string
}

// Start switches a machine on. It is off again when ctx ends.
func Start(ctx context.Context, o MachineOptions) (*Machine, error) {
	qemu, err := exec.LookPath("qemu-system-aarch64")
	if err != nil {
		return nil, fmt.Errorf("start a machine: %w: apt-get install qemu-system-arm", guest.ErrNoQEMU)
	}
	if _, err := os.Stat(firmware); err != nil {
		return nil, fmt.Errorf("start a machine: %w: apt-get install u-boot-qemu", err)
	}
	monitor := o.Disk + ".monitor"
	args := []string{
		"-M", "virt", "-cpu", "cortex-a72", "-accel", "tcg", "-smp", "2", "-m", "512",
		"-nodefaults", "-display", "none", "-monitor", "unix:" + monitor + ",server=on,wait=off", "-serial", "stdio", "-bios", firmware,
		"-drive", "if=none,format=raw,id=disk,file=" + o.Disk, "-device", "virtio-blk-pci,drive=disk,romfile=",
	}
	for i, card := range o.Cards {
		// The rest of the card's options belongs to its kind, which comes first.
		args = append(args, "-netdev", fmt.Sprintf("%s,id=card%d", card, i),
			"-device", fmt.Sprintf("virtio-net-pci,netdev=card%d,romfile=", i))
	}
	if o.Clock != "" {
		args = append(args, "-rtc", "base="+o.Clock)
	}
	m := &Machine{cmd: exec.CommandContext(ctx, qemu, args...), monitor: monitor, start: time.Now(), done: make(chan struct{}), more: make(chan struct{})}
	m.cmd.Stderr = &m.errors
	m.cmd.SysProcAttr = guest.Attributes()
	console, err := m.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start a machine: %w", err)
	}
	// An input that has ended would be keys to U-Boot.
	in, err := m.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start a machine: %w", err)
	}
	started := make(chan error)
	go func() {
		// A child dies with the thread that started it; this one stays.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := m.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		m.read(console)
		m.err = m.cmd.Wait()
		in.Close()
		close(m.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start a machine: %w", err)
	}
	for _, card := range o.Off {
		if err := m.Link(ctx, card, false); err != nil {
			return nil, errors.Join(err, m.Stop())
		}
	}
	return m, nil
}

// Link plugs the cable of a card in, or pulls it out. Cards are counted from 0.
func (m *Machine) Link(ctx context.Context, card int, up bool) error {
	state := "off"
	if up {
		state = "on"
	}
	err := m.order(ctx, fmt.Sprintf("set_link card%d %s", card, state))
	if err != nil {
		return fmt.Errorf("put card %d %s: %w\n%s", card, state, err, m.Tail())
	}
	return nil
}

// order has QEMU's monitor carry out a command that says nothing if it succeeds.
func (m *Machine) order(ctx context.Context, command string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var c net.Conn
	for {
		var err error
		if c, err = (&net.Dialer{}).DialContext(ctx, "unix", m.monitor); err == nil {
			break
		}
		// QEMU makes the socket a moment after its start.
		t := time.NewTimer(10 * time.Millisecond)
		select {
		case <-t.C:
		case <-m.done:
			t.Stop()
			return err
		case <-ctx.Done():
			t.Stop()
			return err
		}
	}
	defer c.Close()
	if deadline, ok := ctx.Deadline(); ok {
		c.SetDeadline(deadline)
	}
	const prompt = "(qemu) "
	r := bufio.NewReader(c)
	if _, err := until(r, prompt); err != nil {
		return err
	}
	if _, err := io.WriteString(c, command+"\n"); err != nil {
		return err
	}
	answer, err := until(r, prompt)
	if err != nil {
		return err
	}
	// The first line repeats the command, with codes of a terminal.
	if _, said, _ := strings.Cut(answer, "\n"); strings.TrimSpace(said) != strings.TrimSpace(prompt) {
		return fmt.Errorf("QEMU says %q", said)
	}
	return nil
}

// until reads up to the end of a text.
func until(r *bufio.Reader, end string) (string, error) {
	var b strings.Builder
	for !strings.HasSuffix(b.String(), end) {
		c, err := r.ReadByte()
		if err != nil {
			return b.String(), err
		}
		b.WriteByte(c)
	}
	return b.String(), nil
}

// read keeps the console's lines.
func (m *Machine) read(console io.Reader) {
	r := bufio.NewReader(console)
	for {
		text, err := r.ReadString('\n')
		if text = strings.Trim(text, "\r\n"); text != "" {
			m.mu.Lock()
			m.lines = append(m.lines, Line{time.Since(m.start), text})
			close(m.more)
			m.more = make(chan struct{})
			m.mu.Unlock()
		}
		if err != nil {
			return
		}
	}
}

// Lines returns what was printed on the console so far.
func (m *Machine) Lines() []Line {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.lines)
}

// Stages returns those of the lines in which the start of the system tells how far
// it is.
func (m *Machine) Stages() []Line {
	return slices.DeleteFunc(m.Lines(), func(l Line) bool { return !strings.Contains(l.Text, "sluice-boot:") })
}

// Await waits for a line of the console that contains a text, and returns it. The
// error holds the console's tail, and how QEMU was called.
func (m *Machine) Await(ctx context.Context, text string) (Line, error) {
	for at := 0; ; {
		m.mu.Lock()
		lines, more := m.lines[at:], m.more
		at = len(m.lines)
		m.mu.Unlock()
		for _, l := range lines {
			if strings.Contains(l.Text, text) {
				return l, nil
			}
		}
		select {
		case <-more:
		case <-m.done:
			if len(m.Lines()) == at {
				return Line{}, fmt.Errorf("the machine ended before its console said %q: %w\n%s", text, m.err, m.Tail())
			}
		case <-ctx.Done():
			return Line{}, fmt.Errorf("the machine's console did not say %q: %w\n%s", text, context.Cause(ctx), m.Tail())
		}
	}
}

// Stop switches the machine off at once, as one pulls a plug, except that what the
// machine has written is on the disk.
func (m *Machine) Stop() error {
	err := m.cmd.Process.Kill()
	<-m.done
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop the machine: %w", err)
	}
	return nil
}

// Tail returns how QEMU was called and the end of the console.
func (m *Machine) Tail() string {
	const keep = 60
	lines := m.Lines()
	var b strings.Builder
	fmt.Fprintf(&b, "QEMU: %s\nconsole:\n", m.cmd)
	for _, l := range lines[max(0, len(lines)-keep):] {
		fmt.Fprintf(&b, "%6.1f s  %s\n", l.After.Seconds(), l.Text)
	}
	select {
	case <-m.done:
		b.WriteString(m.errors.String())
	default:
	}
	return b.String()
}
