package guest

import "time"

// plan tells the guest's first process what to do. It is the file planPath of
// the root file system, in JSON.
type plan struct {
	Modules []string // files to load, in order
	Command []string
	Env     []string
	Time    time.Time // the host's when the guest was started
}

const (
	planPath   = "/plan.json"
	modulesDir = "/modules"
	// initArgument is what the first process is called with.
	initArgument = "guest-init"
	// reportPort is the name of the virtio port that takes what the command prints.
	reportPort = "report"
)

// The last line of a report. One that has neither as its last line was cut short.
const (
	lastDone   = "done"
	lastFailed = "failed: " // and why
)
