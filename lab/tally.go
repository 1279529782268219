package lab

import (
	"fmt"
	"math/bits"
	"strconv"
)

// Tally compares the output stream with what Sensors feeds have published: by
// message, since a message's readings are stored as one.
type Tally struct {
	devices map[string]*tallied

	// Strangers is how many readings of other devices were seen.
	Strangers uint64
	doubled   uint64
	disorder  uint64
	wrong     uint64
	first     string // the first fault, in words
}

// tallied is what was seen of one device.
type tallied struct {
	feed   int
	place  uint64 // of the device within its feed
	share  uint64 // how many devices take turns
	sensor sensor
	seen   bitset // by n
	lanes  map[string]*tallyLane
}

// tallyLane is a message of which some readings were seen, and the last whole
// one before it.
type tallyLane struct {
	field int
	n     uint64
	after uint64 // the next n must not be below
}

// NewTally returns a tally of the readings of feeds.
func NewTally(feeds []*Sensors) *Tally {
	t := &Tally{devices: make(map[string]*tallied)}
	for f, s := range feeds {
		for i, d := range s.devices {
			t.devices[d.name] = &tallied{
				feed: f, place: uint64(i), share: uint64(len(s.devices)), sensor: d,
				lanes: make(map[string]*tallyLane),
			}
		}
	}
	return t
}

// Add takes the stream's next record.
func (t *Tally) Add(r Record) {
	d := t.devices[r.Device]
	if d == nil {
		t.Strangers++
		return
	}
	l := d.lanes[r.Lane]
	if l == nil {
		l = &tallyLane{}
		d.lanes[r.Lane] = l
	}
	if r.Name == SensorFields[0] {
		if l.field != 0 {
			t.fault(&t.wrong, "message %d of %s was torn before its field %s", l.n, r.Device, SensorFields[l.field])
		}
		n, err := strconv.ParseUint(r.Value, 10, 64)
		if err != nil {
			t.fault(&t.wrong, "%s: count %q: %v", r.Device, r.Value, err)
			return
		}
		l.n, l.field = n, 0
	}
	if want := SensorFields[l.field]; r.Name != want {
		t.fault(&t.wrong, "message %d of %s: field %s instead of %s", l.n, r.Device, r.Name, want)
		return
	}
	var literal [24]byte
	if want := d.sensor.appendValue(literal[:0], l.field, l.n); r.Kind != KindNumber || r.Value != string(want) {
		t.fault(&t.wrong, "message %d of %s: %s is %s instead of %s", l.n, r.Device, r.Name, r.Value, want)
	}
	if l.field++; l.field < len(SensorFields) {
		return
	}
	l.field = 0
	switch {
	case !d.seen.set(l.n):
		t.fault(&t.doubled, "message %d of %s came twice", l.n, r.Device)
	case l.n < l.after:
		t.fault(&t.disorder, "message %d of %s came after %d in lane %s", l.n, r.Device, l.after-1, r.Lane)
	}
	l.after = max(l.after, l.n+1)
}

// Seen returns how many different messages were seen whole.
func (t *Tally) Seen() uint64 {
	var seen uint64
	for _, d := range t.devices {
		for _, word := range d.seen {
			seen += uint64(bits.OnesCount64(word))
		}
	}
	return seen
}

// Faults returns how many messages came twice, out of order or changed, and the
// first of them in words.
func (t *Tally) Faults() (uint64, string) { return t.doubled + t.disorder + t.wrong, t.first }

func (t *Tally) fault(count *uint64, format string, args ...any) {
	*count++
	if t.first == "" {
		t.first = fmt.Sprintf(format, args...)
	}
}

// Result is the oracle's verdict, in messages.
type Result struct {
	Sent       uint64 // different messages published at least once
	Acked      uint64 // of them acknowledged
	Delivered  uint64 // of those acknowledged, how many the stream holds
	Unasked    uint64 // in the stream though never acknowledged: allowed, once
	Lost       uint64 // acknowledged and not in the stream
	Doubled    uint64
	Disordered uint64
	Wrong      uint64 // a value that is not the one sent, or a torn message
	Fault      string // the first fault, in words
}

// Compare gives the verdict on what load has published through the tally's
// feeds.
func (t *Tally) Compare(load *Load) Result {
	r := Result{Doubled: t.doubled, Disordered: t.disorder, Wrong: t.wrong, Fault: t.first}
	for _, p := range load.publishers {
		p.mu.Lock()
		r.Sent += p.next
		p.mu.Unlock()
		r.Acked += p.count.Load()
	}
	for name, d := range t.devices {
		p := load.publishers[d.feed]
		p.mu.Lock()
		for m := d.place; m < p.next; m += d.share {
			switch n := m / d.share; {
			case !p.acked.has(m):
			case d.seen.has(n):
				r.Delivered++
			default:
				r.Lost++
				if r.Fault == "" {
					r.Fault = fmt.Sprintf("message %d of %s was acknowledged and is not in the stream", n, name)
				}
			}
		}
		p.mu.Unlock()
	}
	r.Unasked = t.Seen() - r.Delivered
	return r
}

// OK reports whether every acknowledged message arrived exactly once, in order
// and unchanged.
func (r Result) OK() bool { return r.Lost+r.Doubled+r.Disordered+r.Wrong == 0 }

func (r Result) String() string {
	s := fmt.Sprintf("delivered %d of %d acknowledged messages, lost %d, doubled %d, disordered %d, wrong %d, and %d that were not acknowledged",
		r.Delivered, r.Acked, r.Lost, r.Doubled, r.Disordered, r.Wrong, r.Unasked)
	if r.Fault != "" {
		s += ": " + r.Fault
	}
	return s
}
