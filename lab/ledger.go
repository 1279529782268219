package lab

import "fmt"

// entry is what one reading looks like to a consumer. Time is empty where the
// message does not say it.
type entry struct {
	Device, Name string
	Kind         Kind
	Value, Time  string
}

func (e entry) String() string {
	return fmt.Sprintf("%s/%s = %s at %s", e.Device, e.Name, e.Value, e.Time)
}

// Ledger compares the output stream with a Replay, reading by reading: as often
// as a reading was published it must be in the stream.
type Ledger struct {
	open      map[entry]int // how many are still to come; below zero: too many
	Expected  uint64
	Delivered uint64
	Doubled   uint64 // readings beyond those expected, unknown ones included
	Fault     string // the first reading that was one too many
}

// NewLedger expects the readings of the first messages of a replay.
func NewLedger(r *Replay, messages uint64) (*Ledger, error) {
	l := &Ledger{open: make(map[entry]int)}
	for m := range messages {
		entries, err := r.entries(m)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			l.open[e]++
			l.Expected++
		}
	}
	return l, nil
}

// Add takes the stream's next record.
func (l *Ledger) Add(r Record) {
	e := entry{Device: r.Device, Name: r.Name, Kind: r.Kind, Value: r.Value, Time: r.Time}
	if _, timed := l.open[e]; !timed {
		e.Time = ""
	}
	if l.open[e] > 0 {
		l.open[e]--
		l.Delivered++
		return
	}
	l.Doubled++
	if l.Fault == "" {
		l.Fault = e.String()
	}
}

// Lost is how many expected readings have not come, and one of them.
func (l *Ledger) Lost() (uint64, string) {
	if l.Expected == l.Delivered {
		return 0, ""
	}
	for e, n := range l.open {
		if n > 0 {
			return l.Expected - l.Delivered, e.String()
		}
	}
	return l.Expected - l.Delivered, ""
}
