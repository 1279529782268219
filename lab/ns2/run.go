package ns2

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

//go:embed *.tcl
var scripts embed.FS

// ErrNoSimulator is returned when ns is not installed.
var ErrNoSimulator = errors.New("the simulator ns is not installed: apt-get install ns2")

// runTimeout bounds one simulation, which takes seconds.
const runTimeout = 2 * time.Minute

// The protocols that the scripts know.
const (
	TCPDefault  = "tcp-default"  // as ns has it: Tahoe, 1000 bytes a packet, a window of 20
	TCP         = "tcp"          // selective acknowledgements, 1460 bytes a packet
	SCTP        = "sctp"         // 1468 bytes a chunk
	SCTPDefault = "sctp-default" // the same among competitors of kind TCPDefault
	SCTPMulti   = "sctp-multi"   // over two chains in MSChain, where SCTP has one
	MSSCTP      = "ms-sctp"      // with the primary path set by a policy
)

// HTSingle runs [HT] 1: run 1 or 2, with a queue of 5 or 10 packets.
func HTSingle(ctx context.Context, protocol string, run, queue int, seed uint64, length time.Duration) (Trace, error) {
	return simulate(ctx, "ht-single.tcl", place{sources: []string{"1"}, sinks: []string{"6"}}, length,
		protocol, strconv.Itoa(run), strconv.Itoa(queue), seedText(seed), seconds(length))
}

// HTMulti runs [HT] 2: path 0 of the trace is if0, path 1 is if1.
func HTMulti(ctx context.Context, protocol string, seed uint64, length time.Duration) (Trace, error) {
	return simulate(ctx, "ht-multi.tcl", place{sinks: []string{"4", "5"}}, length,
		protocol, seedText(seed), seconds(length))
}

// PER runs a scheme under packet loss, 0 to 1, one value a path: one or two. The
// loss begins at PEROnset.
func PER(ctx context.Context, scheme string, losses []float64, seed uint64, length time.Duration) (Trace, error) {
	loss := func(path int) string { return strconv.FormatFloat(losses[min(path, len(losses)-1)], 'g', -1, 64) }
	return simulate(ctx, "per.tcl", place{sinks: []string{"4", "5"}}, length,
		scheme, strconv.Itoa(len(losses)), loss(0), loss(1), seedText(seed), seconds(length))
}

// PEROnset is when packets begin to be lost in PER.
const PEROnset = time.Second

// MSChain runs the chain of [MS] 2.1 at a packet error rate of 0 to 0.5; of
// SCTPMulti and MSSCTP two such chains, a path each.
func MSChain(ctx context.Context, protocol string, rate float64, seed uint64, length time.Duration) (Trace, error) {
	p := place{sources: []string{"0"}, sinks: []string{"6"}, layer: "AGT"}
	if protocol == SCTPMulti || protocol == MSSCTP {
		p.sources, p.sinks = []string{"0", "2"}, []string{"9", "13"}
	}
	return simulate(ctx, "ms-chain.tcl", p, length,
		protocol, strconv.FormatFloat(rate, 'g', -1, 64), seedText(seed), seconds(length))
}

// seedText makes a seed that ns takes: its generator's are positive and of 31
// bits.
func seedText(seed uint64) string { return strconv.FormatUint(seed%(1<<31-2)+1, 10) }

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }

// simulate runs a script and reads the trace that it prints.
func simulate(ctx context.Context, script string, p place, length time.Duration, args ...string) (Trace, error) {
	t, err := simulateIn(ctx, script, p, length, args)
	if err != nil {
		return t, fmt.Errorf("simulate %s %v: %w", script, args, err)
	}
	return t, nil
}

func simulateIn(ctx context.Context, script string, p place, length time.Duration, args []string) (Trace, error) {
	ns, err := exec.LookPath("ns")
	if err != nil {
		return Trace{}, ErrNoSimulator
	}
	dir, err := os.MkdirTemp("", "sluice-ns2-")
	if err != nil {
		return Trace{}, err
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(dir, scripts); err != nil {
		return Trace{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, ns, append([]string{filepath.Join(dir, script)}, args...)...)
	cmd.Dir = dir
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.StdoutPipe()
	if err != nil {
		return Trace{}, err
	}
	if err := cmd.Start(); err != nil {
		return Trace{}, err
	}
	t, readErr := readTrace(out, p, length)
	// ns must not wait for a reader that has given up.
	io.Copy(io.Discard, out)
	if err := cmd.Wait(); err != nil {
		return Trace{}, fmt.Errorf("%w\n%s", errors.Join(err, ctx.Err()), complaints.Bytes())
	}
	return t, readErr
}
