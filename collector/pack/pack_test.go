package pack_test

import (
	"net/url"
	"strings"
	"testing"

	"sluice/collector"
	"sluice/collector/outputtest"
	"sluice/collector/pack"
	"sluice/reading"
)

type bounds struct {
	first, last uint64
	part, parts int
}

func TestCut(t *testing.T) {
	long := outputtest.Readings(1, 3)
	long.Readings[1].Value = reading.Text(strings.Repeat("x", 2500))
	for _, test := range []struct {
		name   string
		limits pack.Limits
		ds     []collector.Delivery
		want   []bounds
	}{
		{"nothing", pack.Limits{Readings: 10, Bytes: 1000}, nil, nil},
		{"neighbours share a pack", pack.Limits{Readings: 10, Bytes: 10000},
			[]collector.Delivery{outputtest.Readings(1, 3), outputtest.Readings(4, 3)},
			[]bounds{{1, 6, 1, 1}}},
		{"a gap ends a pack", pack.Limits{Readings: 10, Bytes: 10000},
			[]collector.Delivery{outputtest.Readings(1, 3), outputtest.Readings(5, 3)},
			[]bounds{{1, 3, 1, 1}, {5, 7, 1, 1}}},
		{"by count", pack.Limits{Readings: 4, Bytes: 10000},
			[]collector.Delivery{outputtest.Readings(1, 3), outputtest.Readings(4, 7)},
			[]bounds{{1, 4, 1, 1}, {5, 8, 1, 1}, {9, 10, 1, 1}}},
		{"unreadable between", pack.Limits{Readings: 10, Bytes: 10000},
			[]collector.Delivery{outputtest.Readings(1, 3), {First: 4, Count: 9, Unreadable: []byte{0}}, outputtest.Readings(13, 1)},
			[]bounds{{1, 3, 1, 1}, {4, 12, 1, 1}, {13, 13, 1, 1}}},
		{"empty unreadable", pack.Limits{Readings: 10, Bytes: 10000},
			[]collector.Delivery{{First: 4, Count: 9, Unreadable: []byte{}}},
			[]bounds{{4, 12, 1, 1}}},
		{"too long for one message", pack.Limits{Readings: 10, Bytes: 1000},
			[]collector.Delivery{long},
			[]bounds{{1, 1, 1, 1}, {2, 2, 1, 3}, {2, 2, 2, 3}, {2, 2, 3, 3}, {3, 3, 1, 1}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []bounds
			for p := range pack.Cut(test.ds, test.limits) {
				got = append(got, bounds{p.First, p.Last, p.Part, p.Parts})
				if len(p.Body) > test.limits.Bytes {
					t.Errorf("pack %v: got %d bytes, limit %d", p.First, len(p.Body), test.limits.Bytes)
				}
			}
			if len(got) != len(test.want) {
				t.Fatalf("got %v, want %v", got, test.want)
			}
			for i := range got {
				if got[i] != test.want[i] {
					t.Fatalf("got %v, want %v", got, test.want)
				}
			}
		})
	}
}

// Whatever the estimate of a reading's size, no pack is over the limit, none
// of many readings is cut into parts, and all readings come out.
func TestCutKeepsItsLimits(t *testing.T) {
	d := outputtest.Readings(1, 3000)
	for i := range d.Readings {
		d.Readings[i].Value = reading.Text(strings.Repeat("\x01", i%50)) // six times as long in JSON
	}
	next := uint64(1)
	for p := range pack.Cut([]collector.Delivery{d}, pack.Limits{Readings: 4096, Bytes: 5000}) {
		if p.Parts != 1 || len(p.Body) > 5000 {
			t.Fatalf("pack from %d: got %d bytes in %d parts", p.First, len(p.Body), p.Parts)
		}
		got := outputtest.Delivery(t, p)
		if got.First != next {
			t.Fatalf("got a pack from %d, want from %d", got.First, next)
		}
		for i, r := range got.Readings {
			if want := d.Readings[got.First-1+uint64(i)]; r != want {
				t.Fatalf("reading %d: got %+v, want %+v", got.First+uint64(i), r, want)
			}
		}
		next = got.Last() + 1
	}
	if next != 3001 {
		t.Fatalf("got readings up to %d, want 3000", next-1)
	}
}

// The receiver may stop, and deliveries keep what they had: packs are cut from
// them without changing them.
func TestCutStops(t *testing.T) {
	ds := []collector.Delivery{outputtest.Readings(1, 10), outputtest.Readings(11, 10)}
	for range pack.Cut(ds, pack.Limits{Readings: 4, Bytes: 1000}) {
		break
	}
	for range pack.Cut([]collector.Delivery{
		{First: 1, Count: 5, Readings: ds[0].Readings[:5]}, ds[1]}, pack.Limits{Readings: 100, Bytes: 1e6}) {
	}
	if got, want := ds[0].Readings[5], outputtest.Readings(6, 1).Readings[0]; got != want {
		t.Fatalf("reading after a delivery: got %+v, want %+v", got, want)
	}
}

func TestEscape(t *testing.T) {
	for _, test := range []struct{ id, want string }{
		{"gw-1_A", "gw-1_A"},
		{"a.b", "a%2Eb"},
		{"%", "%25"},
		{"..", "%2E%2E"},
		{"ü/+#*> ", "%C3%BC%2F%2B%23%2A%3E%20"},
		{"", ""},
	} {
		got := pack.Escape(test.id)
		if got != test.want {
			t.Errorf("escape %q: got %q, want %q", test.id, got, test.want)
		}
		if back, err := url.PathUnescape(got); err != nil || back != test.id {
			t.Errorf("unescape %q: got %q, %v, want %q", got, back, err, test.id)
		}
	}
}
