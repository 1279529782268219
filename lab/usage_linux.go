package lab

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// clockTicks is USER_HZ, the unit of CPU times in /proc: 100 on every Linux.
const clockTicks = 100

// ReadUsage reads what process pid has used so far.
func ReadUsage(pid int) (Usage, error) {
	u := Usage{}
	dir := fmt.Sprintf("/proc/%d/", pid)
	stat, err := os.ReadFile(dir + "stat")
	if err != nil {
		return u, fmt.Errorf("read usage of process %d: %w", pid, err)
	}
	// The name in parentheses may hold anything; what follows it is plain.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const user, system = 11, 12 // utime and stime, counted from the state
	if len(fields) <= system {
		return u, fmt.Errorf("read usage of process %d: short stat file", pid)
	}
	for _, f := range [][]byte{fields[user], fields[system]} {
		ticks, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return u, fmt.Errorf("read usage of process %d: %w", pid, err)
		}
		u.CPU += time.Duration(ticks) * time.Second / clockTicks
	}
	status, err := readPairs(dir + "status")
	if err != nil {
		return u, err
	}
	u.Resident, u.Peak = status["VmRSS"]<<10, status["VmHWM"]<<10
	io, err := readPairs(dir + "io")
	if err != nil {
		return u, err
	}
	u.Written = io["write_bytes"]
	return u, nil
}

// ResetPeak makes a process's peak of resident memory start again.
func ResetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// readPairs reads the numbers of a file of lines "name: number unit".
func readPairs(path string) (map[string]int64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	pairs := make(map[string]int64)
	for line := range strings.Lines(string(b)) {
		name, rest, _ := strings.Cut(line, ":")
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			continue
		}
		if v, err := strconv.ParseInt(fields[0], 10, 64); err == nil {
			pairs[name] = v
		}
	}
	return pairs, nil
}
