package sluice_test

import (
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

// rule keeps some packages from importing others. Patterns are import paths; one
// that ends in "/..." also means everything below.
type rule struct {
	why  string
	from []string // these packages
	not  []string // except these
	may  []string // import nothing but these, if set
	deny []string // import none of these
}

// rules are the edges that docs/architecture.md forbids.
func rules() []rule {
	const (
		everything = "sluice/..."
		programs   = "sluice/cmd/..."
	)
	standard := []string{"net/...", "os/...", "log/..."}
	return []rule{
		{why: "a policy is pure: it is told the time and the measurements", from: []string{"sluice/pathsel/..."}, deny: append(standard, "sluice/...")},
		{why: "readings know nothing of what is done with them", from: []string{"sluice/reading/..."}, may: []string{"sluice/reading/..."}},
		{why: "the wire format is a leaf", from: []string{"sluice/uplink/wire"}, may: []string{"sluice/reading"}},
		{why: "ingest knows neither store nor uplink", from: []string{"sluice/ingest/..."}, may: []string{"sluice/ingest/...", "sluice/reading/...", "sluice/atomicfile"}},
		{why: "the store knows neither ingest nor uplink", from: []string{"sluice/store/..."}, may: []string{"sluice/store/...", "sluice/reading/..."}},
		{why: "the uplink knows its queue only as an interface", from: []string{"sluice/uplink/..."}, may: []string{"sluice/uplink/...", "sluice/pathsel/...", "sluice/reading/...", "sluice/atomicfile"}},
		{why: "the far end shares the session protocol with the gateway and nothing else", from: []string{"sluice/collector/..."},
			may: []string{"sluice/collector/...", "sluice/uplink/...", "sluice/pathsel/...", "sluice/reading/..."}},
		{why: "the status shows parts that it does not know", from: []string{"sluice/admin/..."}, may: []string{"sluice/admin/..."}},
		{why: "packages receive plain values, never configuration types", from: []string{everything}, not: []string{"sluice/config", programs}, deny: []string{"sluice/config"}},
		{why: "updates know of the gateway what they are told", from: []string{"sluice/appliance/update"}, may: []string{"sluice/atomicfile"}},
		{why: "commands wire and nobody imports them", from: []string{everything}, deny: []string{programs}},
		{why: "the product does not depend on its laboratory", from: []string{everything}, not: []string{"sluice/lab/...", "sluice/e2e/...", "sluice/cmd/sluice-lab"},
			deny: []string{"sluice/lab/...", "sluice/e2e/..."}},
		{why: "one package knows the database", from: []string{everything}, not: []string{"sluice/store"}, deny: []string{"go.etcd.io/bbolt/..."}},
		{why: "one output knows NATS; the laboratory reads the stream as any client does", from: []string{everything},
			not: []string{"sluice/collector/jetstream", "sluice/lab", "sluice/e2e"}, deny: []string{"github.com/nats-io/..."}},
		{why: "few packages change links and routes", from: []string{everything}, not: []string{"sluice/uplink/paths", "sluice/uplink/tunnel", "sluice/lab/..."},
			deny: []string{"github.com/vishvananda/..."}},
		{why: "one carrier knows SCTP", from: []string{everything}, not: []string{"sluice/uplink/sctp"}, deny: []string{"github.com/ishidawataru/sctp"}},
		{why: "one package reads TOML", from: []string{everything}, not: []string{"sluice/config"}, deny: []string{"github.com/pelletier/go-toml/...", "github.com/BurntSushi/toml"}},
	}
}

// TestImports walks the import graph, tests left out.
func TestImports(t *testing.T) {
	for _, line := range golist(t, "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...") {
		importer, imports, _ := strings.Cut(line, " ")
		for _, r := range rules() {
			if !matches(importer, r.from) || matches(importer, r.not) {
				continue
			}
			for imported := range strings.FieldsSeq(imports) {
				ours := matches(imported, []string{"sluice/..."})
				if matches(imported, r.deny) || ours && r.may != nil && !matches(imported, r.may) {
					t.Errorf("%s imports %s, but %s", importer, imported, r.why)
				}
			}
		}
	}
}

// TestGatewayHoldsNoServer checks the whole of what is linked into the gateway.
func TestGatewayHoldsNoServer(t *testing.T) {
	for _, dep := range golist(t, "-deps", "./cmd/sluice") {
		if matches(dep, []string{"github.com/nats-io/...", "sluice/collector/...", "testing"}) {
			t.Errorf("cmd/sluice depends on %s", dep)
		}
	}
}

func golist(t *testing.T, args ...string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...).Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return slices.Collect(strings.FieldsFuncSeq(string(out), func(r rune) bool { return r == '\n' }))
}

func matches(importPath string, patterns []string) bool {
	for _, p := range patterns {
		if tree, ok := strings.CutSuffix(p, "/..."); ok && (importPath == tree || strings.HasPrefix(importPath, tree+"/")) {
			return true
		}
		if importPath == path.Clean(p) {
			return true
		}
	}
	return false
}
