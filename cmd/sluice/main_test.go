package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestCommands(t *testing.T) {
	dir := t.TempDir()
	example := filepath.Join(dir, "sluice.toml")
	var text bytes.Buffer
	if code := run(t.Context(), []string{"init-config"}, &text, os.Stderr); code != 0 {
		t.Fatalf("init-config: got %d", code)
	}
	if err := os.WriteFile(example, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	wrong := filepath.Join(dir, "wrong.json")
	if err := os.WriteFile(wrong, []byte(`[{"n":"a","v":1},{"n":"a","v":"1"}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	faulty := filepath.Join(dir, "faulty.toml")
	if err := os.WriteFile(faulty, []byte("version = 1\nstor = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		args           string
		code           int
		stdout, stderr string // parts of what is written
	}{
		{"", 2, "", "usage: sluice COMMAND"},
		{"help", 0, "check-config", ""},
		{"--help", 0, "check-config", ""},
		{"frobnicate", 2, "", "unknown command \"frobnicate\""},
		{"version", 0, "sluice unknown\n", ""},
		{"help push", 0, "usage: sluice push FILE|- --to URL", ""},
		{"push --help", 0, "SSL_CERT_FILE", ""},
		{"help frobnicate", 2, "", "unknown command \"frobnicate\""},
		{"status --jsn", 2, "", "flag provided but not defined: -jsn\nusage: sluice status ["},
		{"version extra", 2, "", "arguments given: 1, wanted: 0\nusage: sluice version\n"},
		{"check-config " + example, 0, ": ok\n", ""},
		{"check-config", 2, "", "usage: sluice check-config FILE"},
		{"check-config " + dir + "/none.toml", 1, "", "no such file"},
		{"run --config " + dir + "/none.toml", 1, "", "no such file"},
		{"status --config " + example + " --socket " + dir + "/none.sock", 1, "", "is the gateway running"},
		{"push", 2, "", "usage: sluice push FILE"},
		{"push " + example, 1, "", "write --to http://gateway:8080"},
		{"push " + example + " --to gateway:8080", 1, "", "not a URL"},
		{"push " + example + " --to http://127.0.0.1:1", 1, "", "write --node NAME, or --token-file FILE"},
		{"push " + example + " --to http://127.0.0.1:1 --node n", 1, "", "holds no SenML"},
		{"push " + wrong + " --to http://127.0.0.1:1 --node n", 1, "", `wrong.json: record 1: field "v": must be a number`},
		{"push " + dir + "/none --to http://127.0.0.1:1 --node n", 1, "", "no such file or directory; name a SenML file"},
		{"push " + dir + " --to http://127.0.0.1:1 --node n", 1, "", "is a directory; name a SenML file"},
		{"run --config " + faulty, 1, "", faulty + ":2: stor: unknown key"},
		{"store check " + dir, 1, "", "is a folder; name the file in it, " + dir + "/store.db"},
		{"store frobnicate " + wrong, 2, "", "write check, stat or export"},
		{"store check " + dir + "/none.db", 1, "", "none.db: no such file or directory; name the file store.db"},
	}
	for _, test := range tests {
		t.Run(test.args, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), strings.Fields(test.args), &stdout, &stderr)
			if code != test.code || !strings.Contains(stdout.String(), test.stdout) || !strings.Contains(stderr.String(), test.stderr) {
				t.Errorf("got %d\n%s\n%s\nwant %d %q %q", code, &stdout, &stderr, test.code, test.stdout, test.stderr)
			}
		})
	}
}

// TestHelp checks that every command has its text, that it fits a console of 80
// columns and names every flag there is.
func TestHelp(t *testing.T) {
	for _, c := range commands() {
		var out bytes.Buffer
		if code := run(t.Context(), []string{"help", c.name}, &out, os.Stderr); code != 0 || c.text == "" {
			t.Errorf("help %s: got %d and %q", c.name, code, &out)
		}
		for _, word := range strings.Fields(strings.NewReplacer("[", " ", "]", " ").Replace(c.args)) {
			if strings.HasPrefix(word, "--") && !strings.Contains(c.text, "  "+word+" ") {
				t.Errorf("help %s does not explain %s", c.name, word)
			}
		}
		for line := range strings.Lines(out.String()) {
			if len(line) > 81 {
				t.Errorf("help %s: long line %q", c.name, line)
			}
		}
	}
}

// TestCheckConfig compares what a technician sees with a golden file.
func TestCheckConfig(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"check-config", "testdata/wrong.toml"}, &stdout, &stderr); code != 1 || stderr.Len() > 0 {
		t.Errorf("got %d and %q, want 1 and all on the standard output", code, &stderr)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	got := bytes.ReplaceAll(stdout.Bytes(), []byte(here), []byte("HERE"))
	if *update {
		if err := os.WriteFile("testdata/wrong.txt", got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/wrong.txt")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}
