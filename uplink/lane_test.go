package uplink

import (
	"testing"
	"time"

	"sluice/uplink/wire"
)

// flown returns a lane that sent frames of ten readings on the carriers given.
func flown(links ...*link) *lane {
	l := new(lane)
	now := time.Unix(1000, 0)
	for i, on := range links {
		from := uint64(i) * 10
		l.took(now, span{prev: from, from: from, last: from + 10, count: 10, bytes: 100, link: on})
	}
	return l
}

func TestLaneAck(t *testing.T) {
	a := new(link)
	l := flown(a, a, a)
	if got := l.ack(15); len(got) != 1 || got[0].last != 10 || l.bytes != 200 {
		t.Errorf("ack of one frame and a half: %d ended, %d bytes left", len(got), l.bytes)
	}
	if got := l.ack(12); got != nil {
		t.Errorf("an older ack: got %v", got)
	}
	if got := l.ack(30); len(got) != 2 || l.bytes != 0 {
		t.Errorf("ack of all: %d ended, %d bytes left", len(got), l.bytes)
	}
}

// With two carriers at once, only what the lost one carried goes again, and not
// what the collector said it holds.
func TestLaneDrop(t *testing.T) {
	a, b := new(link), new(link)
	l := flown(a, b, a, b, a)
	l.hasReceived(21, 30) // the third frame
	l.drop(a, b)
	if len(l.lost) != 2 || l.lost[0].from != 0 || l.lost[1].from != 40 {
		t.Fatalf("lost: got %+v, want the first and the last frame", l.lost)
	}
	if len(l.flight) != 3 || l.bytes != 300 || b.flying != 3 {
		t.Errorf("in flight: %d frames, %d bytes, %d on the other, want 3, 300, 3", len(l.flight), l.bytes, b.flying)
	}
	l.drop(b, nil)
	if len(l.lost) != 1 || l.lost[0].from != 0 || l.lost[0].last != 50 || l.bytes != 0 {
		t.Errorf("after the other is lost as well: got %+v and %d bytes, want one run of all", l.lost, l.bytes)
	}
}

func TestLaneResume(t *testing.T) {
	now := time.Unix(2000, 0)
	for _, c := range []struct {
		name             string
		durable, receive uint64
		lostPrev, lostAt uint64 // of the first lost run; 0 and 0 if none
		flying, end      uint64 // sequence numbers in flight, where new frames begin
	}{
		{"nothing arrived", 0, 0, 0, 0, 0, 30},
		{"some is durable", 15, 15, 15, 15, 0, 30},
		{"some is in the collector's memory", 5, 15, 15, 15, 10, 30},
		{"all is there", 30, 30, 0, 30, 0, 30},
		{"more is there than this process sent", 99, 99, 0, 99, 0, 99},
	} {
		a, b := new(link), new(link)
		l := flown(a, a, a)
		l.drop(a, nil)
		l.resume(now, wire.Resume{Durable: c.durable, Received: c.receive}, b, true)
		if c.lostAt < 30 {
			if len(l.lost) != 1 || l.lost[0].prev != c.lostPrev || l.lost[0].from != c.lostAt || l.lost[0].last != 30 {
				t.Errorf("%s: lost %+v, want from %d after %d", c.name, l.lost, c.lostAt, c.lostPrev)
			}
		} else if len(l.lost) != 0 {
			t.Errorf("%s: lost %+v, want none", c.name, l.lost)
		}
		flying := uint64(0)
		for _, s := range l.flight {
			flying += s.last - s.from
		}
		if flying != c.flying || l.sent != c.end || l.prev != c.end {
			t.Errorf("%s: %d in flight, next after %d, said %d, want %d and %d", c.name, flying, l.sent, l.prev, c.flying, c.end)
		}
	}
}

// Another collector that never had what an earlier one acknowledged must not
// wait for it.
func TestLaneResumeElsewhere(t *testing.T) {
	a, b := new(link), new(link)
	l := flown(a, a, a)
	l.ack(20)
	l.drop(a, nil)
	l.resume(time.Unix(2000, 0), wire.Resume{Durable: 3, Received: 3}, b, true)
	if len(l.lost) != 1 || l.lost[0].prev != 3 || l.lost[0].from != 20 {
		t.Errorf("with readings lost: got %+v, want from 20 after 3", l.lost)
	}
	l = flown(a)
	l.ack(10)
	l.resume(time.Unix(2000, 0), wire.Resume{}, b, true)
	if l.prev != 0 || l.sent != 10 {
		t.Errorf("with nothing lost: next after %d, said %d, want after 10, said 0", l.sent, l.prev)
	}
}
