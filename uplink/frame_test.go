package uplink

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"sluice/reading"
)

// segment encodes readings first to first+count-1, each its own number.
func segment(first uint64, count int, quality reading.Quality) reading.Segment {
	rs := make([]reading.Reading, count)
	for i := range rs {
		rs[i] = numbered(first + uint64(i))
		rs[i].Time.Quality = quality
	}
	return reading.Segment{First: first, Count: count, Data: reading.AppendBatch(nil, rs)}
}

func numbered(seq uint64) reading.Reading {
	return reading.Reading{Device: fmt.Sprint("d", seq%7), Name: "n", Value: reading.Int(int64(seq * 7919 % 100_003)),
		Time: reading.Time{Wall: int64(seq) * 1e9}}
}

// unpack fails unless segments hold exactly the readings after one number up to
// another.
func unpack(t *testing.T, segments []reading.Segment, after, through uint64) {
	t.Helper()
	next := after + 1
	for _, s := range segments {
		rs, err := reading.DecodeBatch(s.Data)
		if err != nil || len(rs) != s.Count || s.First != next {
			t.Fatalf("segment %d+%d where %d is next: %d readings, %v", s.First, s.Count, next, len(rs), err)
		}
		for i, r := range rs {
			if want := numbered(next + uint64(i)); r != want {
				t.Fatalf("reading %d: got %+v, want %+v", next, r, want)
			}
		}
		next = s.Last() + 1
	}
	if next != through+1 {
		t.Fatalf("segments end at %d, through is %d", next-1, through)
	}
}

func TestPackMergesSmall(t *testing.T) {
	var p packer
	var in []reading.Segment
	for i := range uint64(50) {
		in = append(in, segment(1+i*6, 6, reading.Synchronised))
	}
	out, through := p.pack(in, 0, math.MaxUint64, 1<<20)
	unpack(t, out, 0, 300)
	if len(out) != 1 || through != 300 {
		t.Errorf("50 small segments: got %d, through %d, want one through 300", len(out), through)
	}
	stored := 0
	for _, s := range in {
		stored += len(s.Data)
	}
	if got := len(out[0].Data); got*2 > stored {
		t.Errorf("merged %d bytes into %d: nothing gained", stored, got)
	}
}

func TestPackPassesLarge(t *testing.T) {
	var p packer
	in := []reading.Segment{segment(1, 2000, reading.Synchronised), segment(2001, 2000, reading.Synchronised)}
	out, through := p.pack(in, 0, math.MaxUint64, 1<<20)
	if len(out) != 2 || &out[0].Data[0] != &in[0].Data[0] || through != 4000 {
		t.Errorf("large segments: got %d through %d, want the same two", len(out), through)
	}
}

func TestPackKeepsGaps(t *testing.T) {
	var p packer
	in := []reading.Segment{segment(1, 3, 0), segment(4, 3, 0), segment(10, 3, 0), segment(13, 3, 0)}
	out, through := p.pack(in, 0, math.MaxUint64, 1<<20)
	if len(out) != 2 || through != 15 {
		t.Fatalf("got %d segments through %d, want 2 through 15", len(out), through)
	}
	unpack(t, out[:1], 0, 6)
	unpack(t, out[1:], 9, 15)
	// What was lost and has meanwhile been removed.
	if out, through := p.pack(in[2:], 3, 6, 1<<20); len(out) != 0 || through != 6 {
		t.Errorf("removed: got %d segments through %d, want none through 6", len(out), through)
	}
}

// A segment that the collector cannot read goes as it is, for the collector to
// set aside (F13).
func TestPackPassesUnreadable(t *testing.T) {
	var p packer
	bad := reading.Segment{First: 4, Count: 3, Data: []byte("broken")}
	out, through := p.pack([]reading.Segment{segment(1, 3, 0), bad, segment(7, 3, 0)}, 0, math.MaxUint64, 1<<20)
	if len(out) != 3 || string(out[1].Data) != "broken" || through != 9 {
		t.Errorf("got %d segments through %d, want 3 through 9", len(out), through)
	}
}

// F14: times that can be corrected by now are, in the frame.
func TestPackCorrects(t *testing.T) {
	calls := 0
	p := packer{correct: func(rs []reading.Reading) bool {
		calls++
		for i := range rs {
			rs[i].Time.Quality = reading.Synchronised
		}
		return true
	}}
	in := []reading.Segment{segment(1, 500, reading.Unsynchronised), segment(501, 500, reading.Synchronised)}
	out, through := p.pack(in, 0, math.MaxUint64, 1<<20)
	unpack(t, out, 0, 1000)
	if through != 1000 || calls != 1 {
		t.Errorf("through %d after %d corrections, want 1000 after 1", through, calls)
	}
}

// Frames of any size, cut at any reading, hold every reading once.
func TestPackSplits(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for range 15 {
		var p packer
		var in []reading.Segment
		next := uint64(1)
		for range 20 {
			n := 1 + rng.IntN(1+rng.IntN(2000))
			in = append(in, segment(next, n, reading.Synchronised))
			next += uint64(n)
		}
		upto := uint64(rng.IntN(int(next)))
		if rng.IntN(2) == 0 {
			upto = next - 1
		}
		after := uint64(0)
		for frames := 0; after < upto; frames++ {
			size := 1 + rng.IntN(1+rng.IntN(8000))
			out, through := p.pack(in, after, upto, size)
			if through <= after || through > upto {
				t.Fatalf("frame after %d of %d bytes: through %d of %d", after, size, through, upto)
			}
			unpack(t, out, after, through)
			after = through
		}
	}
}

func BenchmarkPackSmall(b *testing.B) {
	var p packer
	var in []reading.Segment
	for i := range uint64(100) {
		in = append(in, segment(1+i*6, 6, reading.Synchronised))
	}
	b.ReportAllocs()
	for b.Loop() {
		p.pack(in, 0, math.MaxUint64, 1<<20)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/600, "ns/reading")
}

// Frames of many small segments stay within their size, heads included.
func TestPackCountsHeads(t *testing.T) {
	var p packer
	var in []reading.Segment
	for i := range uint64(200) {
		in = append(in, segment(1+i*2, 1, reading.Synchronised)) // a gap after each
	}
	out, through := p.pack(in, 0, math.MaxUint64, 4096)
	size := 0
	for _, s := range out {
		size += segmentHead + len(s.Data)
	}
	if size > 4096 || through != out[len(out)-1].Last() {
		t.Errorf("%d segments take %d bytes with heads, through %d", len(out), size, through)
	}
}
