package guest

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// A shell plays QEMU: what counts is the last line.
func TestReport(t *testing.T) {
	tests := []struct{ name, script, lines, err string }{
		{"done", `echo '{"a":1}'; echo two; echo done`, `{"a":1} two`, ""},
		{"nothing but done", `echo done`, "", ""},
		{"failed", `echo one; echo "failed: exit status 3"`, "one", "exit status 3"},
		{"cut short", `echo one; echo two`, "one", `its last line was "two"`},
		{"nothing", `:`, "", "the guest ended before its command did"},
		{"QEMU failed", `echo 'no such machine' >&2; exit 1`, "", "no such machine"},
		{"no end of line", `printf 'one\ndone'`, "one", ""},
	}
	for _, test := range tests {
		var got []string
		err := emulate(t.Context(), exec.Command("sh", "-c", test.script), func(b []byte) { got = append(got, string(b)) })
		if strings.Join(got, " ") != test.lines {
			t.Errorf("%s: got lines %q, want %s", test.name, got, test.lines)
		}
		if fmt.Sprint(err) != "<nil>" && test.err == "" || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
			t.Errorf("%s: got error %v, want %q", test.name, err, test.err)
		}
	}
}

// A guest that hangs is stopped, and the error says why.
func TestReportTimeout(t *testing.T) {
	late := errors.New("time is up")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, late)
	defer cancel()
	err := emulate(ctx, exec.CommandContext(ctx, "sleep", "60"), func([]byte) {})
	if !errors.Is(err, late) {
		t.Errorf("got %v, want %v", err, late)
	}
}

func TestRunRefuses(t *testing.T) {
	err := Run(t.Context(), Options{Arch: "mips"}, nil)
	if err == nil || !strings.Contains(err.Error(), `"mips" is not one of arm64, arm, amd64`) {
		t.Errorf("got %v", err)
	}
	if err := Init(); err == nil {
		t.Error("a test is no guest's first process")
	}
}
