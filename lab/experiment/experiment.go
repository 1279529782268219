package experiment

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// Experiment is one question and the way to its answer.
type Experiment struct {
	Name    string // one word: the command's argument and the files' name
	Summary string // one line

	// simulate runs the ns-2 part; nil if there is none.
	simulate func(ctx context.Context, s *simulation) error
	// published are the papers' figures; nil if there are none.
	published func() []Record
	// report says what the records mean.
	report func(records []Record) report
}

// All returns every experiment, in the order in which they are best read.
func All() []Experiment {
	return []Experiment{per(), msChain(), htSingle(), htMulti(), handover(), nat()}
}

// Find returns the experiment of that name.
func Find(name string) (Experiment, bool) {
	for _, e := range All() {
		if e.Name == name {
			return e, true
		}
	}
	return Experiment{}, false
}

// Env is what an experiment runs in.
type Env struct {
	Quick    bool      // fewer cases and shorter runs: whether it works, not how good it is
	Case     string    // only cases whose name holds this; empty for all
	Scheme   string    // only schemes whose name holds this; empty for all
	Seed     uint64    // of every random choice; each record bears the seed of its own run
	Binaries string    // folder of sluice and sluice-collector, where the flows run
	Dir      string    // folder for temporary files, where the flows run; best in memory
	Results  string    // folder that Run writes to, usually docs/results
	Progress io.Writer // for people

	// Guest starts the program sluice-lab with these arguments where there are
	// SCTP and netem, as root, and passes on each line of its standard output.
	// Run needs it; Measure does not.
	Guest func(ctx context.Context, args []string, line func([]byte)) error
}

// Command is the subcommand of sluice-lab that Run asks a Guest for. It calls
// Measure.
const Command = "measure"

// Run runs the experiment and writes its results. What a run of a part of it, or
// one that broke off, did not measure is kept from the run before.
func (e Experiment) Run(ctx context.Context, env Env) error {
	earlier, err := readRecords(filepath.Join(env.Results, e.Name+".jsonl"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("experiment %s: %w", e.Name, err)
	}
	var records []Record
	if e.published != nil {
		records = e.published()
	}
	if e.simulate != nil && env.Scheme == "" {
		s := &simulation{quick: env.Quick, seed: env.Seed, name: e.Name, only: env.Case}
		fmt.Fprintf(env.Progress, "%s: simulating with ns-2\n", e.Name)
		if err := e.simulate(ctx, s); err != nil {
			return fmt.Errorf("experiment %s: %w", e.Name, err)
		}
		records = append(records, s.records...)
	}
	args := []string{Command, e.Name, "--seed", strconv.FormatUint(env.Seed, 10)}
	if env.Quick {
		args = append(args, "--quick")
	}
	if env.Case != "" {
		args = append(args, "--case", env.Case)
	}
	if env.Scheme != "" {
		args = append(args, "--scheme", env.Scheme)
	}
	var bad error
	err = env.Guest(ctx, args, func(line []byte) {
		r, err := decodeRecord(line)
		if err != nil {
			bad = err
			return
		}
		fmt.Fprintln(env.Progress, r)
		records = append(records, r)
	})
	if err = errors.Join(err, bad); err != nil {
		err = fmt.Errorf("experiment %s: %w", e.Name, err)
	}
	if err != nil || env.Case != "" || env.Scheme != "" {
		records = merge(earlier, records)
	}
	return errors.Join(err, e.write(env.Results, records))
}

// merge returns the new records, and those of before that they do not replace. A
// quick run does not replace a whole one.
func merge(before, now []Record) []Record {
	type subject struct {
		source       Source
		name, scheme string
		at           float64
	}
	of := func(r Record) subject { return subject{r.Source, r.Case, r.Scheme, r.At} }
	whole, renewed := make(map[subject]bool), make(map[subject]bool)
	for _, r := range before {
		whole[of(r)] = whole[of(r)] || !r.Quick
	}
	now = slices.DeleteFunc(slices.Clone(now), func(r Record) bool { return r.Quick && whole[of(r)] })
	for _, r := range now {
		renewed[of(r)] = true
	}
	for _, r := range before {
		if !renewed[of(r)] {
			now = append(now, r)
		}
	}
	return now
}

// Measure runs the part of the experiment that needs the kernel and emits its
// records as they come. It needs root, SCTP and netem.
func (e Experiment) Measure(ctx context.Context, env Env, emit func(Record) error) error {
	measure := measures()[e.Name]
	if measure == nil {
		return fmt.Errorf("experiment %s: needs Linux: run it in the lab's guest", e.Name)
	}
	b := &bench{env: env, name: e.Name, emit: emit}
	if err := measure(ctx, b); err != nil {
		return fmt.Errorf("experiment %s: %w", e.Name, err)
	}
	return nil
}

func (e Experiment) write(folder string, records []Record) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("write results of %s: %w", e.Name, err)
	}
	var lines bytes.Buffer
	encoder := json.NewEncoder(&lines)
	for _, r := range records {
		if err := encoder.Encode(r); err != nil {
			return fmt.Errorf("write %s: %w", e.Name, err)
		}
	}
	out := e.report(records)
	out.title, out.quick = e.Summary, slices.ContainsFunc(records, func(r Record) bool { return r.Quick })
	files := map[string][]byte{e.Name + ".jsonl": lines.Bytes()}
	for i, p := range out.plots {
		name := e.Name + ".svg"
		if i > 0 {
			name = fmt.Sprintf("%s-%d.svg", e.Name, i+1)
		}
		image, err := p.svg()
		if err != nil {
			return fmt.Errorf("plot %s: %w", name, err)
		}
		out.plots[i].file, files[name] = name, image
	}
	files[e.Name+".md"] = []byte(out.markdown(e.Name))
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(folder, name), b, 0o644); err != nil {
			return fmt.Errorf("write results of %s: %w", e.Name, err)
		}
	}
	return nil
}

func readRecords(path string) ([]Record, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var records []Record
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		r, err := decodeRecord(s.Bytes())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		records = append(records, r)
	}
	return records, s.Err()
}
