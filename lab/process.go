package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"sluice/lab/topology"
)

// ProcessOptions describe a program to run.
type ProcessOptions struct {
	Path string         // of the binary
	Args []string       // without the name
	Env  []string       // added to the lab's own environment
	Dir  string         // working directory
	Log  string         // file to which stdout and stderr are appended
	Host *topology.Host // to run on, nil for the lab's own
}

// Process is a running program in a process group of its own. It is always
// reaped, and on Linux it dies with the lab.
type Process struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{}
	err  error // why it ended; read after done
}

// StartProcess starts a program.
func StartProcess(o ProcessOptions) (*Process, error) {
	log, err := os.OpenFile(o.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(o.Path), err)
	}
	defer log.Close()
	cmd := exec.Command(o.Path, o.Args...)
	cmd.Dir = o.Dir
	cmd.Env = append(os.Environ(), o.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = processAttributes()
	if err := o.Host.Start(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(o.Path), err)
	}
	p := &Process{cmd: cmd, log: o.Log, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// PID returns the process number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended and was reaped.
func (p *Process) Done() <-chan struct{} { return p.done }

// Kill ends the process at once, as the loss of power would, and reaps it.
func (p *Process) Kill() {
	// The process group's number is the process's own.
	syscall.Kill(-p.PID(), syscall.SIGKILL)
	<-p.done
}

// Signal sends a signal to the process.
func (p *Process) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// Stop asks the process to end and waits for it. One that has not ended when
// ctx does is killed. The error says when it did not end cleanly.
func (p *Process) Stop(ctx context.Context) error {
	if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p, err)
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		p.Kill()
		return fmt.Errorf("stop %s: still running when time was up; it was killed\n%s", p, p.Tail())
	}
	if p.err != nil {
		return fmt.Errorf("stop %s: %w\n%s", p, p.err, p.Tail())
	}
	return nil
}

// Await calls ready until it returns nil. It gives up when ctx ends or the
// process does.
func (p *Process) Await(ctx context.Context, ready func(context.Context) error) error {
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("wait for %s: it ended: %w\n%s", p, p.err, p.Tail())
		default:
		}
		if !pause(ctx, 10*time.Millisecond) {
			return fmt.Errorf("wait for %s: %w\n%s", p, err, p.Tail())
		}
	}
}

// Tail returns the end of what the process has printed.
func (p *Process) Tail() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	const keep = 4 << 10
	if len(b) > keep {
		b = b[len(b)-keep:]
	}
	return string(bytes.TrimSpace(b))
}

func (p *Process) String() string {
	return fmt.Sprintf("%s (process %d)", filepath.Base(p.cmd.Path), p.PID())
}
