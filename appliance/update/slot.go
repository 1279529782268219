package update

import (
	"os"
	"os/exec"
	"strings"
)

// Slot returns which system of an appliance runs, "A" or "B"; empty on a machine
// that has only one, or no rauc.
func Slot() string {
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return ""
	}
	if _, err := exec.LookPath("rauc"); err != nil {
		return ""
	}
	return slotOf(string(line))
}

// slotOf is the slot that a kernel command line names.
func slotOf(line string) string {
	for word := range strings.FieldsSeq(line) {
		if slot, ok := strings.CutPrefix(word, "rauc.slot="); ok {
			return slot
		}
	}
	return ""
}
