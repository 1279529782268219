// Package outputtest is the conformance suite of collector.Output.
package outputtest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/collector"
	"sluice/reading"
)

// Place is where one kind of output keeps its readings, empty at first.
type Place struct {
	// Open opens an output on the place; the suite closes it.
	Open func(t *testing.T) collector.Output
	// Read returns what a consumer finds there of one stream, in order, however
	// it is cut.
	Read func(t *testing.T, s collector.Stream) []collector.Delivery
}

// Run runs the suite; place makes a new place for each test.
func Run(t *testing.T, place func(t *testing.T) Place) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, Place)
	}{
		{"LastOfNothing", lastOfNothing},
		{"WriteThenLast", writeThenLast},
		{"Conflict", conflict},
		{"Reopen", reopen},
		{"StreamsAreApart", streamsAreApart},
		{"BigWritesAreSplit", bigWritesAreSplit},
		{"BigReading", bigReading},
		{"ExactValues", exactValues},
		{"UnreadableIsSetAside", unreadableIsSetAside},
		{"ContextEnds", contextEnds},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, place(t)) })
	}
}

var live = collector.Stream{Gateway: "gw-1", Epoch: 0xfeedfacecafebeef, Lane: reading.Live}

// Context is the time one test may take.
func Context(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// Readings returns a delivery of n readings whose values are their sequence
// numbers.
func Readings(first uint64, n int) collector.Delivery {
	d := collector.Delivery{First: first, Count: n, Readings: make([]reading.Reading, n)}
	for i := range d.Readings {
		seq := first + uint64(i)
		d.Readings[i] = reading.Reading{
			Device: fmt.Sprintf("kitchen/lamp-%d", seq%20),
			Name:   "temperature",
			Unit:   "Cel",
			Value:  reading.Int(int64(seq)),
			Time:   reading.Time{Wall: 1764536400_123456789 + int64(seq)*1e6},
		}
	}
	return d
}

func open(t *testing.T, p Place) collector.Output {
	t.Helper()
	o := p.Open(t)
	var once sync.Once
	t.Cleanup(func() { once.Do(func() { o.Close() }) })
	return o
}

func wantLast(t *testing.T, o collector.Output, s collector.Stream, want uint64) {
	t.Helper()
	got, err := o.Last(Context(t), s)
	if err != nil {
		t.Fatalf("last of %v: %v", s, err)
	}
	if got != want {
		t.Fatalf("last of %v: got %d, want %d", s, got, want)
	}
}

func write(t *testing.T, o collector.Output, s collector.Stream, after uint64, ds ...collector.Delivery) {
	t.Helper()
	if err := o.Write(Context(t), s, after, ds); err != nil {
		t.Fatalf("write after %d: %v", after, err)
	}
}

// Flat joins deliveries into sequence numbers and readings; an unreadable one
// is a reading of its own kind.
func Flat(ds []collector.Delivery) (seqs []uint64, rs []reading.Reading) {
	for _, d := range ds {
		if d.Unreadable != nil {
			seqs = append(seqs, d.First)
			rs = append(rs, reading.Reading{Device: d.Reason, Name: fmt.Sprintf("unreadable %d to %d", d.First, d.Last()),
				Value: reading.Bytes(d.Unreadable)})
		}
		for i, r := range d.Readings {
			seqs = append(seqs, d.First+uint64(i))
			rs = append(rs, r)
		}
	}
	return seqs, rs
}

// WantRead checks that a consumer finds exactly want.
func WantRead(t *testing.T, p Place, s collector.Stream, want ...collector.Delivery) {
	t.Helper()
	gotSeqs, gotReadings := Flat(p.Read(t, s))
	wantSeqs, wantReadings := Flat(want)
	if !reflect.DeepEqual(gotSeqs, wantSeqs) {
		t.Fatalf("%v: got sequence numbers %s, want %s", s, short(gotSeqs), short(wantSeqs))
	}
	for i, got := range gotReadings {
		if want := wantReadings[i]; got != want {
			t.Fatalf("reading %d: got %+v, want %+v", gotSeqs[i], got, want)
		}
	}
}

func short(seqs []uint64) string {
	if len(seqs) > 20 {
		return fmt.Sprintf("%v ... %v (%d)", seqs[:10], seqs[len(seqs)-10:], len(seqs))
	}
	return fmt.Sprint(seqs)
}

func lastOfNothing(t *testing.T, p Place) {
	wantLast(t, open(t, p), live, 0)
}

func writeThenLast(t *testing.T, p Place) {
	o := open(t, p)
	write(t, o, live, 0, Readings(1, 3))
	wantLast(t, o, live, 3)
	write(t, o, live, 3, Readings(4, 2), Readings(6, 1))
	wantLast(t, o, live, 6)
	// The quota removed 7 to 9.
	write(t, o, live, 6, Readings(10, 2), Readings(15, 1))
	wantLast(t, o, live, 15)
	write(t, o, live, 15)
	wantLast(t, o, live, 15)
	WantRead(t, p, live, Readings(1, 6), Readings(10, 2), Readings(15, 1))
}

func conflict(t *testing.T, p Place) {
	o := open(t, p)
	write(t, o, live, 0, Readings(1, 3))
	for _, after := range []uint64{0, 2, 7} {
		err := o.Write(Context(t), live, after, []collector.Delivery{Readings(after+1, 3)})
		if !errors.Is(err, collector.ErrConflict) {
			t.Fatalf("write after %d: got %v, want %v", after, err, collector.ErrConflict)
		}
	}
	write(t, o, live, 3, Readings(4, 1))
	WantRead(t, p, live, Readings(1, 4))
}

func reopen(t *testing.T, p Place) {
	o := open(t, p)
	write(t, o, live, 0, Readings(1, 3))
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	o = open(t, p)
	wantLast(t, o, live, 3)
	write(t, o, live, 3, Readings(4, 3))
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	// A first write that nobody has asked Last for.
	o = open(t, p)
	write(t, o, live, 6, Readings(7, 1))
	WantRead(t, p, live, Readings(1, 7))
}

func streamsAreApart(t *testing.T, p Place) {
	o := open(t, p)
	streams := []collector.Stream{
		live,
		{Gateway: live.Gateway, Epoch: live.Epoch, Lane: reading.Alarm},
		{Gateway: live.Gateway, Epoch: live.Epoch, Lane: reading.Backfill},
		{Gateway: live.Gateway, Epoch: live.Epoch + 1, Lane: live.Lane},
		{Gateway: "gw-2", Epoch: live.Epoch, Lane: live.Lane},
		{Gateway: "../odd.name > * / + # %41 ü", Epoch: 1, Lane: live.Lane},
		{Gateway: "a", Epoch: 1, Lane: live.Lane},
		{Gateway: "%61", Epoch: 1, Lane: live.Lane},
	}
	var wg sync.WaitGroup
	for i, s := range streams {
		wg.Go(func() {
			for after := uint64(0); after < 5; after++ {
				if err := o.Write(Context(t), s, after, []collector.Delivery{Readings(after+1, 1)}); err != nil {
					t.Errorf("write %v after %d: %v", s, after, err)
					return
				}
			}
			if err := o.Write(Context(t), s, 5, []collector.Delivery{Readings(6, i+1)}); err != nil {
				t.Errorf("write %v: %v", s, err)
			}
		})
	}
	wg.Wait()
	for i, s := range streams {
		wantLast(t, o, s, uint64(6+i))
		WantRead(t, p, s, Readings(1, 6+i))
	}
}

func bigWritesAreSplit(t *testing.T, p Place) {
	o := open(t, p)
	var ds []collector.Delivery
	for first := uint64(1); first <= 20000; first += 1000 {
		ds = append(ds, Readings(first, 1000))
	}
	write(t, o, live, 0, ds...)
	wantLast(t, o, live, 20000)
	WantRead(t, p, live, Readings(1, 20000))
}

// F28: a payload of megabytes that was kept raw.
func bigReading(t *testing.T, p Place) {
	o := open(t, p)
	d := Readings(1, 3)
	d.Readings[1].Value = reading.Bytes([]byte(strings.Repeat("\x00\xffpayload", 300_000)))
	d.Readings[1].Flags = reading.FlagRaw
	write(t, o, live, 0, d)
	wantLast(t, o, live, 3)
	WantRead(t, p, live, d)
}

// F23, F26, F27: values come out as they went in.
func exactValues(t *testing.T, p Place) {
	number := func(s string) reading.Value {
		v, err := reading.Number(s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	values := []reading.Value{
		{},
		reading.Bool(true),
		reading.Bool(false),
		number("2882429806056571124"),
		number("-9223372036854775808"),
		number("18446744073709551615"),
		number("23.50"),
		number("-0"),
		number("1.0e-7"),
		number("0.1000000000000000055511151231257827"),
		number("-32768"),
		reading.Text("ON"),
		reading.Text(""),
		reading.Text("zwölf \"quotes\" \\ \n \t \x01 \u2028 \U0001f321"),
		reading.Bytes([]byte{0, 1, 0xff}),
		reading.Bytes([]byte{}),
	}
	d := collector.Delivery{First: 1, Count: len(values)}
	for i, v := range values {
		r := reading.Reading{Device: "zigbee/çölé", Name: "color.x", Value: v,
			Time: reading.Time{Wall: 1764536400_000000001 + int64(i)}}
		d.Readings = append(d.Readings, r)
	}
	d.Readings[1].Time.Quality = reading.FromDevice
	d.Readings[2].Time = reading.Time{Wall: 5_000_000_000, Quality: reading.Unsynchronised, Boot: 0x0123456789abcdef, Mono: 42}
	d.Readings[3].Unit = "W"
	d.Readings[10].Flags = reading.FlagInvalid
	d.Readings[11].Flags = reading.FlagRetained
	d.Readings[14].Flags = reading.FlagRaw | reading.FlagRetained
	o := open(t, p)
	write(t, o, live, 0, d)
	WantRead(t, p, live, d)
}

// F13: a batch that cannot be read is set aside with its reason, and the queue
// behind it moves on.
func unreadableIsSetAside(t *testing.T, p Place) {
	o := open(t, p)
	bad := collector.Delivery{First: 3, Count: 5, Unreadable: []byte("\x00\x01not a batch\xff"), Reason: "version 9:\nunknown"}
	write(t, o, live, 0, Readings(1, 2), bad, Readings(8, 2))
	wantLast(t, o, live, 9)
	bad.Reason = strings.ReplaceAll(bad.Reason, "\n", " ")
	got := p.Read(t, live)
	for i := range got {
		got[i].Reason = strings.ReplaceAll(got[i].Reason, "\n", " ")
	}
	WantRead(t, Place{Read: func(*testing.T, collector.Stream) []collector.Delivery { return got }},
		live, Readings(1, 2), bad, Readings(8, 2))
}

func contextEnds(t *testing.T, p Place) {
	o := open(t, p)
	write(t, o, live, 0, Readings(1, 1))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := o.Write(ended, live, 1, []collector.Delivery{Readings(2, 1)}); err == nil {
		t.Fatal("write with an ended context: got no error")
	}
	// Whatever became of that write, Last tells.
	last, err := o.Last(Context(t), live)
	if err != nil {
		t.Fatal(err)
	}
	write(t, o, live, last, Readings(last+1, 1))
	wantLast(t, o, live, last+1)
}
