package update

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fakeEnv names the folder of a fake rauc, which this program is when it is set.
const fakeEnv = "SLUICE_FAKE_RAUC"

func TestMain(m *testing.M) {
	if dir := os.Getenv(fakeEnv); dir != "" {
		os.Exit(playRauc(dir, os.Args[1:]))
	}
	os.Exit(m.Run())
}

// answer is what a fake rauc does when it is called.
type answer struct {
	Out, Err string
	Code     int
	Hang     bool // it does not end by itself
}

// fakeRauc is a program that answers by its sub-command and notes its calls.
type fakeRauc struct {
	Rauc
	t   *testing.T
	dir string
}

func newFakeRauc(t *testing.T, answers map[string]answer) *fakeRauc {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script, err := json.Marshal(answers)
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeRauc{Rauc: Rauc{Program: self}, t: t, dir: t.TempDir()}
	writeFile(t, filepath.Join(f.dir, "answers"), string(script))
	t.Setenv(fakeEnv, f.dir)
	t.Setenv("GORACE", "atexit_sleep_ms=0") // or each call takes a second under the race detector
	return f
}

// calls are the arguments of each call.
func (f *fakeRauc) calls() []string {
	data, err := os.ReadFile(filepath.Join(f.dir, "calls"))
	if err != nil && !os.IsNotExist(err) {
		f.t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}

func playRauc(dir string, args []string) int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, "fake rauc:", err)
		return 99
	}
	calls, err := os.OpenFile(filepath.Join(dir, "calls"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fail(err)
	}
	defer calls.Close()
	fmt.Fprintln(calls, strings.Join(args, " "))
	script, err := os.ReadFile(filepath.Join(dir, "answers"))
	if err != nil {
		return fail(err)
	}
	var answers map[string]answer
	if err := json.Unmarshal(script, &answers); err != nil {
		return fail(err)
	}
	name := args[0]
	if name == "status" && !strings.HasPrefix(args[1], "-") {
		name = args[1]
	}
	a, ok := answers[name]
	if !ok {
		return fail(fmt.Errorf("no answer to %q", name))
	}
	fmt.Print(a.Out)
	fmt.Fprint(os.Stderr, a.Err)
	if a.Hang {
		time.Sleep(time.Hour) // the one who called ends it
	}
	return a.Code
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
