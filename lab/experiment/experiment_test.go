package experiment

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/lab/flow"
)

// measuredRun is a run of half the slots at one rate, half at another.
func measuredRun(experiment, name, scheme string, at, first, second float64) Record {
	r := Record{Experiment: experiment, Source: Measured, Case: name, Scheme: scheme, At: at, Run: 1, Bound: 900}
	s := flow.Series{Slot: flow.Interval}
	for i := range 80 {
		rate := first
		if i >= 40 {
			rate = second
		}
		s.Rates = append(s.Rates, rate)
	}
	r.setSeries(s)
	for _, name := range []string{"gap_s", "faults", "switches", "resent_percent", "delay_ms", "rival_percent"} {
		r.value(name, 0)
	}
	return r
}

func TestRunWritesWhatTheGuestMeasures(t *testing.T) {
	dir := t.TempDir()
	e, ok := Find("per")
	if !ok {
		t.Fatal("there is no experiment per")
	}
	e.simulate = nil // it takes a minute
	var args []string
	lost := Record{Experiment: "per", Source: Measured, Case: perOne, Scheme: "sctp default", At: 10, Run: 1}
	lost.setFailed(errors.New("connect: time is up\nand more"))
	quick := measuredRun("per", perOne, "tcp cubic", 10, 300, 300)
	quick.Quick = true
	env := Env{Seed: 7, Quick: true, Results: dir, Progress: io.Discard}
	env.Guest = func(_ context.Context, a []string, line func([]byte)) error {
		args = a
		for _, r := range []Record{
			quick,
			measuredRun("per", perOne, schemeProduct, 10, 880, 860),
			measuredRun("per", perTwoClean, schemeProduct, 10, 100, 895),
			lost,
		} {
			b, err := json.Marshal(r)
			if err != nil {
				return err
			}
			line(b)
		}
		return nil
	}
	if err := e.Run(t.Context(), env); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(args, " "), "measure per --seed 7 --quick"; got != want {
		t.Errorf("guest: got %q, want %q", got, want)
	}
	page, err := os.ReadFile(filepath.Join(dir, "per.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"**Some of these were quick runs**",
		"| loss, % | tcp cubic | product | sctp default | bound |",
		"| 10 | 300 | 870 | - | 900 |",
		"- holds: one path, 10 %: the product reaches 0.97 of (1-p)*C; promised is 0.95",
		"- **does not hold**: two paths, 10 % on the first: 3 s after the onset the product has 0.82 of the clean path",
		"![one path, random loss, at 10](per.svg)",
		"![two paths, loss on the first, at 10](per-2.svg)",
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("page: want %q in it", want)
		}
	}
	for _, name := range []string{"per.svg", "per-2.svg"} {
		image, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		var svg struct{ XMLName xml.Name }
		if err := xml.Unmarshal(image, &svg); err != nil || svg.XMLName.Local != "svg" {
			t.Errorf("%s: got %v, %v, want an SVG image", name, svg.XMLName, err)
		}
	}
	// Another part of it leaves the rest as it was.
	env.Scheme = "sctp tuned"
	env.Guest = func(context.Context, []string, func([]byte)) error { return nil }
	if err := e.Run(t.Context(), env); err != nil {
		t.Fatal(err)
	}
	again, err := os.ReadFile(filepath.Join(dir, "per.md"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(again), string(page); got != want {
		t.Errorf("rendered again:\n%s", got)
	}
}

func TestRunSaysWhatWentWrong(t *testing.T) {
	e, _ := Find("per")
	e.simulate = nil
	broken := errors.New("no such emulator")
	for _, c := range []struct {
		name  string
		guest func(context.Context, []string, func([]byte)) error
		want  string
	}{
		{"guest", func(context.Context, []string, func([]byte)) error { return broken }, "experiment per: no such emulator"},
		{"line", func(_ context.Context, _ []string, line func([]byte)) error { line([]byte("hello")); return nil }, `read record "hello"`},
	} {
		env := Env{Results: t.TempDir(), Progress: io.Discard, Guest: c.guest}
		if err := e.Run(t.Context(), env); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q in it", c.name, err, c.want)
		}
	}
}

// TestReports renders every experiment's page without a record and with one of
// each case, so that no page depends on a run being there.
func TestReports(t *testing.T) {
	for _, e := range All() {
		records := []Record{}
		if got := e.report(records).markdown(e.Name); !strings.Contains(got, e.Name+".jsonl") {
			t.Errorf("%s: page without records:\n%s", e.Name, got)
		}
		if e.published != nil {
			records = e.published()
		}
		cases := map[string][]string{
			"per": append(perCases(false), perShared), "ms-chain": {chainCase}, "ht-single": {htCase(1), htCase(2)}, "ht-multi": {htMultiCase},
			"handover": {handoverWorse, handoverDies, handoverFlaps}, "nat": {string(natPlain), string(natSmall)},
		}[e.Name]
		for _, name := range cases {
			for _, scheme := range []string{"tcp cubic", "sctp default", schemeProduct, schemeMS} {
				records = append(records, measuredRun(e.Name, name, scheme, 1, 10, 20))
			}
		}
		page := e.report(records).markdown(e.Name)
		if strings.Contains(page, "NaN") || strings.Contains(page, "%!") {
			t.Errorf("%s: page:\n%s", e.Name, page)
		}
	}
}

func TestPublishedFigures(t *testing.T) {
	s := selection(publishedChain())
	for _, c := range []struct {
		scheme   string
		at, want float64
	}{
		{"tcp", 0, 77}, {"sctp", 0, 90}, {"sctp", 10, 50}, {schemeTCPSCTP, 10, 60}, {schemeMS, 20, 20}, {schemeMS, 50, 1},
	} {
		if got := s.mean(c.scheme+" (published)", c.at); got != c.want {
			t.Errorf("%s at %v: got %v, want %v", c.scheme, c.at, got, c.want)
		}
	}
	for _, r := range s {
		if !strings.HasPrefix(r.Note, "[MS]") {
			t.Errorf("%v bears no citation", r)
		}
	}
}

func TestChainLink(t *testing.T) {
	for _, c := range []struct{ p, rate, loss float64 }{
		{0, 90, 0}, {0.1, 72.9, 0}, {0.3, 44.5, 0.035}, {0.5, 26, 0.436},
	} {
		rate, loss := chainLink(c.p)
		if diff := rate - c.rate; diff > 0.1 || diff < -0.1 {
			t.Errorf("rate at %v: got %v, want %v", c.p, rate, c.rate)
		}
		if diff := loss - c.loss; diff > 0.001 || diff < -0.001 {
			t.Errorf("loss at %v: got %v, want %v", c.p, loss, c.loss)
		}
	}
}

func TestNumber(t *testing.T) {
	for _, c := range []struct {
		v    float64
		want string
	}{{0, "0"}, {1.234, "1.23"}, {12.34, "12.3"}, {959.05, "959"}, {0 / zero(), "-"}} {
		if got := number(c.v); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

// zero keeps the compiler from dividing by it.
func zero() float64 { return float64(time.Duration(0)) }

func FuzzDecodeRecord(f *testing.F) {
	b, err := json.Marshal(measuredRun("per", perOne, "tcp bbr", 10, 1, 2))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"experiment":"per"}`))
	f.Add([]byte(`{"experiment":"per","scheme":"tcp","rates":[1e999]}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := decodeRecord(line)
		if err != nil {
			return
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatalf("encode what was decoded: %v", err)
		}
		if _, err := decodeRecord(bytes.TrimSpace(again)); err != nil {
			t.Fatalf("decode what was encoded: %v", err)
		}
	})
}

func TestMerge(t *testing.T) {
	record := func(scheme string, mean float64, quick bool) Record {
		return Record{Source: Measured, Case: perOne, Scheme: scheme, At: 10, Mean: mean, Quick: quick}
	}
	before := []Record{record("whole", 1, false), record("quick", 2, true), record("kept", 3, false)}
	now := []Record{record("whole", 4, true), record("quick", 5, true)}
	var got []float64
	for _, r := range merge(before, now) {
		got = append(got, r.Mean)
	}
	if want := []float64{5, 1, 3}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
