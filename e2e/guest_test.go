package e2e

import (
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/lab/guest"
)

// guestBinaries is where a guest has the programs under test.
const guestBinaries = "/bin"

// inGuest reports whether the tests run in a guest of the lab's, where what they
// need must be there.
func inGuest() bool { return os.Getenv("SLUICE_GUEST") != "" }

// guestCache is where kernels are kept, for all who use the lab.
const guestCache = "../var/lab"

// guestRun is a package's tests in a guest.
type guestRun struct {
	arch  guest.Arch
	pkg   string // without "sluice/"
	tests string // pattern; empty for all
}

// The kernel's SCTP, netem and WireGuard are real only in a guest. AMD64 is the
// fastest there. The processors that gateways have run what differs between them:
// the layouts of SCTP's structures, and the whole.
func TestGuest(t *testing.T) {
	if inGuest() {
		t.Skip("this is the guest")
	}
	if testing.Short() {
		t.Skip("emulation takes minutes: run without -short")
	}
	const smoke = "^TestPromise8SilentDeathOfALink$"
	const field = "^(TestField19SmallPacketsOnly|TestField20SCTPAndUDPDropped|TestField21AddressRenewed|TestKillWithTunnels)$"
	runs := []guestRun{
		{guest.ARM64, "e2e", smoke},
		{guest.ARM64, "uplink/sctp", ""},
		{guest.ARM, "e2e", smoke},
		{guest.ARM, "uplink/sctp", ""},
		{guest.AMD64, "e2e", field},
		{guest.AMD64, "lab/topology", ""},
		{guest.AMD64, "uplink/paths", ""},
		{guest.AMD64, "uplink/tunnel", ""},
	}
	programs := make(map[guest.Arch]string)
	for _, r := range runs {
		t.Run(string(r.arch)+"/"+r.pkg, func(t *testing.T) {
			if programs[r.arch] == "" {
				programs[r.arch] = buildPrograms(t, r.arch)
			}
			r.run(t, programs[r.arch])
		})
	}
}

// buildPrograms builds the programs under test for guests of an architecture into
// a folder.
func buildPrograms(t *testing.T, arch guest.Arch) string {
	t.Helper()
	dir, err := os.MkdirTemp(binaries, string(arch)+"-")
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	err = guest.Build(t.Context(), arch, dir, "sluice/cmd/sluice", "sluice/cmd/sluice-collector", "sluice/cmd/sluice-lab")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("built the programs in %v", time.Since(start).Round(time.Second/10))
	return dir
}

// run runs the tests with the programs of a folder.
func (r guestRun) run(t *testing.T, programs string) {
	tests := filepath.Join(programs, path.Base(r.pkg)+".test")
	if err := guest.BuildTest(t.Context(), r.arch, tests, "sluice/"+r.pkg); err != nil {
		t.Fatal(err)
	}
	o := guest.Options{
		Arch: r.arch, Cache: guestCache, Init: filepath.Join(programs, "sluice-lab"),
		Files:   map[string]string{"/bin/tests": tests},
		Command: []string{"/bin/tests", "-test.v", "-test.run", r.tests, "-test.timeout", "150s"},
		Timeout: 6 * time.Minute,
	}
	if r.pkg == "e2e" {
		for _, name := range []string{"sluice", "sluice-collector"} {
			o.Files[path.Join(guestBinaries, name)] = filepath.Join(programs, name)
		}
	}
	start, passed := time.Now(), 0
	err := guest.Run(t.Context(), o, func(line []byte) {
		t.Logf("%s", line)
		if text := strings.TrimSpace(string(line)); strings.HasPrefix(text, "--- PASS") {
			passed++
		} else if strings.HasPrefix(text, "--- SKIP") {
			t.Errorf("skipped in the guest, where nothing is missing: %s", text)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if passed == 0 {
		t.Error("no test was run")
	}
	t.Logf("%d tests passed in %v with the guest's start", passed, time.Since(start).Round(time.Second/10))
}
