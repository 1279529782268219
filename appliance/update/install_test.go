package update

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const aBundle = "the bundle's bytes"

// answers are those of a rauc whose installation succeeds.
func answers() map[string]answer {
	return map[string]answer{
		"status":  {Out: `{"compatible":"sluice-pi4","booted":"A","slots":[]}`},
		"info":    {Out: `{"compatible":"sluice-pi4","version":"2"}`},
		"install": {Out: "  0% Installing\n100% Installing done.\nInstalling `b` succeeded\n"},
	}
}

func TestInstall(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/2.raucb" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(aBundle)) // the client says if it was cut
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "2.raucb")
	writeFile(t, file, aBundle)
	inDir := func(t *testing.T) folder { return folder(filepath.Join(t.TempDir(), "update")) }

	for _, source := range []string{file, server.URL + "/2.raucb"} {
		t.Run("of "+source, func(t *testing.T) {
			f, dir := newFakeRauc(t, answers()), inDir(t)
			var said []string
			version, err := Install(t.Context(), InstallOptions{Source: source, Dir: string(dir), Slot: "A", Boot: 7, Rauc: f.Rauc,
				Say: func(line string) { said = append(said, line) }})
			if err != nil || version != "2" {
				t.Fatalf("got %q and %v", version, err)
			}
			installed := file
			if source != file {
				installed = dir.path("bundle.raucb")
				if _, err := os.Stat(installed); !os.IsNotExist(err) {
					t.Errorf("the bundle that was fetched is still there: %v", err)
				}
			}
			want := []string{"status --output-format=json", "info --output-format=json " + installed, "install " + installed}
			if got := f.calls(); !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
			if !slices.Contains(said, "100% Installing done.") {
				t.Errorf("said %q", said)
			}
			trial, err := dir.trial()
			if want := (Trial{From: "A", Boot: 7, Version: "2"}); err != nil || trial == nil || *trial != want {
				t.Errorf("got %v and %v, want %v", trial, err, want)
			}
		})
	}

	ended := answers()
	ended["install"] = answer{Err: "No space left on device\n", Code: 1}
	otherBoard := answers()
	otherBoard["info"] = answer{Out: `{"compatible":"sluice-pi3","version":"2"}`}
	unsigned := answers()
	unsigned["info"] = answer{Err: "signature verification failed: Verify error: self-signed certificate\n", Code: 1}
	for _, test := range []struct {
		name    string
		answers map[string]answer
		source  string
		trial   *Trial // before
		want    string
		after   *Trial
		calls   int
	}{
		{"on trial", answers(), file, &Trial{From: "B", Boot: 6, Version: "1"}, "is on trial", &Trial{From: "B", Boot: 6, Version: "1"}, 0},
		{"another board", otherBoard, file, nil, `for the board "sluice-pi3", this machine is "sluice-pi4"`, nil, 2},
		{"wrong signature", unsigned, file, nil, "wrong signature", nil, 2},
		{"no file", answers(), file + "-not", nil, "name a bundle's file", nil, 1},
		{"not there", answers(), server.URL + "/3.raucb", nil, "404 Not Found: check the URL", nil, 1},
		{"in place of one that waits", ended, file, &Trial{From: "A", Boot: 7, Version: "1"}, "no space",
			&Trial{From: "A", Boot: 7, Version: "2", Failed: "it was not installed: "}, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, dir := newFakeRauc(t, test.answers), inDir(t)
			if test.trial != nil {
				if err := dir.begin(*test.trial); err != nil {
					t.Fatal(err)
				}
			}
			_, err := Install(t.Context(), InstallOptions{Source: test.source, Dir: string(dir), Slot: "A", Boot: 7, Rauc: f.Rauc, Say: func(string) {}})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if got := slices.DeleteFunc(f.calls(), func(s string) bool { return s == "" }); len(got) != test.calls {
				t.Errorf("got %q, want %d calls", got, test.calls)
			}
			got, err := dir.trial()
			if err != nil || (got == nil) != (test.after == nil) {
				t.Fatalf("got %v and %v, want %v", got, err, test.after)
			}
			if got == nil {
				return
			}
			if !strings.HasPrefix(got.Failed, test.after.Failed) {
				t.Errorf("got %q, want %q", got.Failed, test.after.Failed)
			}
			if got.Failed = test.after.Failed; *got != *test.after {
				t.Errorf("got %v, want %v", got, test.after)
			}
		})
	}
}

func TestOneInstallAtATime(t *testing.T) {
	dir := t.TempDir()
	unlock, err := lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock(dir); err == nil || !strings.Contains(err.Error(), "another sluice update") {
		t.Errorf("got %v, want a refusal", err)
	}
	unlock()
	if unlock, err = lock(dir); err != nil {
		t.Fatal(err)
	}
	unlock()
}
