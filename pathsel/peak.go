package pathsel

import "time"

// peak is the largest value of a window that ends now, to a sixtieth of it. The
// zero peak, with a window set, has seen nothing.
type peak struct {
	window time.Duration
	parts  [60]float64
	began  time.Time // what newest counts from, so that no step of the clock moves it
	newest int64     // the number of the part that now falls into
}

// add enters a value that is not negative.
func (p *peak) add(now time.Time, v float64) {
	p.turn(now)
	i := p.newest % int64(len(p.parts))
	p.parts[i] = max(p.parts[i], v)
}

// get returns the largest value, 0 if there is none in the window.
func (p *peak) get(now time.Time) float64 {
	p.turn(now)
	largest := 0.0
	for _, v := range p.parts {
		largest = max(largest, v)
	}
	return largest
}

// turn clears the parts between the newest and the present one.
func (p *peak) turn(now time.Time) {
	if p.began.IsZero() {
		p.began = now
	}
	part := int64(now.Sub(p.began)) / max(1, int64(p.window)/int64(len(p.parts)))
	if part-p.newest >= int64(len(p.parts)) {
		clear(p.parts[:])
	} else {
		for i := p.newest + 1; i <= part; i++ {
			p.parts[i%int64(len(p.parts))] = 0
		}
	}
	p.newest = max(p.newest, part)
}

// trough is the smallest positive value of a window that ends now.
type trough struct{ inverse peak }

func (t *trough) add(now time.Time, v float64) {
	if v > 0 {
		t.inverse.add(now, 1/v)
	}
}

// get returns the smallest value, 0 if there is none in the window.
func (t *trough) get(now time.Time) float64 {
	if v := t.inverse.get(now); v > 0 {
		return 1 / v
	}
	return 0
}
