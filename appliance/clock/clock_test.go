package clock

import (
	"testing"
	"testing/synctest"
	"time"

	"sluice/reading"
)

// fake is a machine whose monotonic time is that of the bubble and whose wall
// clock is whatever a test sets.
type fake struct {
	booted time.Time
	offset time.Duration // wall minus mono
	synced bool
	asked  int
}

func (f *fake) Read() (wall, mono int64) {
	mono = int64(time.Since(f.booted))
	return mono + int64(f.offset), mono
}
func (f *fake) Check() bool  { f.asked++; return f.synced }
func (f *fake) Boot() uint64 { return 7 }

var (
	built = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	truth = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC) // when the box booted
)

// F14: the box boots in 1970, learns the time five minutes later, a step of 56
// years. What was stamped before gets its true time; timers do not notice.
func TestBootWithoutTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{booted: time.Now()}
		c := New(f, built)
		timer := time.NewTimer(10 * time.Minute)
		started := time.Now()

		time.Sleep(90*time.Second + 1234567*time.Nanosecond)
		early := c.Now()
		want := reading.Time{Wall: int64(90*time.Second) + 1e6, Quality: reading.Unsynchronised, Boot: 7, Mono: int64(90*time.Second) + 1234567}
		if early != want {
			t.Errorf("before: got %+v, want %+v", early, want)
		}
		rs := []reading.Reading{{Time: early}}
		if c.Correct(rs) || rs[0].Time != early {
			t.Errorf("corrected before the clock was set: %+v", rs[0].Time)
		}

		time.Sleep(210 * time.Second)
		f.offset, f.synced = time.Duration(truth.UnixNano()), true
		time.Sleep(time.Second)

		other := reading.Time{Wall: 5, Quality: reading.Unsynchronised, Boot: 6, Mono: 5}
		device := reading.Time{Wall: 5, Quality: reading.FromDevice}
		rs = []reading.Reading{{Time: early}, {Time: other}, {Time: device}}
		if !c.Correct(rs) {
			t.Error("after: nothing corrected")
		}
		if got, want := rs[0].Time, (reading.Time{Wall: truth.UnixNano() + int64(90*time.Second) + 1e6}); got != want {
			t.Errorf("after: got %+v, want %+v", got, want)
		}
		if rs[1].Time != other || rs[2].Time != device {
			t.Errorf("after: times of others changed: %+v", rs[1:])
		}
		if c.Correct(rs) {
			t.Error("corrected twice")
		}
		now := c.Now()
		if now.Quality != reading.Synchronised || now.Boot != 0 || now.Mono != 0 || now.Wall != truth.UnixNano()+int64(5*time.Minute+time.Second)+1e6 {
			t.Errorf("after: got %+v", now)
		}
		<-timer.C
		if got := time.Since(started); got != 10*time.Minute {
			t.Errorf("timer fired after %v, want 10m", got)
		}
	})
}

// F15: a clock below the firmware's build time is wrong even if the kernel
// believes in it.
func TestFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{booted: time.Now(), offset: time.Duration(built.UnixNano()) - time.Hour, synced: true}
		c := New(f, built)
		if got := c.Now().Quality; got != reading.Unsynchronised {
			t.Errorf("below the floor: got quality %d", got)
		}
		time.Sleep(time.Hour)
		if got := c.Now().Quality; got != reading.Synchronised {
			t.Errorf("at the floor: got quality %d", got)
		}
	})
}

// The kernel is asked at most once a second, and notices a lost time server.
func TestAskedOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{booted: time.Now(), offset: time.Duration(truth.UnixNano()), synced: true}
		c := New(f, built)
		for range 10 {
			for range 100 {
				c.Now()
			}
			time.Sleep(time.Second / 2)
		}
		if f.asked > 6 {
			t.Errorf("asked %d times in 5 s", f.asked)
		}
		f.synced = false
		time.Sleep(time.Second)
		if got := c.Now().Quality; got != reading.Unsynchronised {
			t.Errorf("after losing the server: got quality %d", got)
		}
	})
}

func TestSystem(t *testing.T) {
	s, err := NewSystem()
	if err != nil {
		t.Fatal(err)
	}
	_, a := s.Read()
	s.Check()
	_, b := s.Read()
	if a > b || s.Boot() == 0 {
		t.Errorf("mono %d then %d, boot %d", a, b, s.Boot())
	}
	New(s, built).Now()
}

func BenchmarkNow(b *testing.B) {
	s, err := NewSystem()
	if err != nil {
		b.Fatal(err)
	}
	c := New(s, built)
	b.ReportAllocs()
	for b.Loop() {
		c.Now()
	}
}
