package pathsel

import (
	"fmt"
	"math"
	"time"
)

const (
	mostCarriers  = 4
	nearBest      = 0.02 // so little more is not worth a further carrier
	gainProtocol  = 0.15 // another protocol must be predicted to carry so much more
	gainCarriers  = 0.08 // and more carriers of the same so much
	learnedFor    = 10 * time.Minute
	learnedBucket = 5.0 // percent of loss that one experience is good for
	mathis        = 1.22
)

// Predictor makes [MS] Algorithm 2 a decision. The paper's process goes to the
// other protocol whenever it is called; ours goes to the scheme that is predicted
// to carry most at this loss: by the measured table, by what schemes were seen to
// carry on this path lately, and by the round trip.
type Predictor struct {
	toggle bool
	paths  map[string]*experience
}

type experience struct {
	capacity peak // bytes a second before the loss
	seen     map[lesson]taught
}

type lesson struct {
	scheme Scheme
	bucket int
}

type taught struct {
	share float64
	at    time.Time
}

// NewPredictor returns a predictor that has seen nothing. With toggle it is the
// paper's process.
func NewPredictor(toggle bool) *Predictor {
	return &Predictor{toggle: toggle, paths: make(map[string]*experience)}
}

// Learn enters that a path that was full delivered so many bytes a second by a
// scheme, at a loss rate in percent.
func (p *Predictor) Learn(now time.Time, path string, s Scheme, percent, rate float64) {
	if rate <= 0 || percent >= 100 {
		return
	}
	e, ok := p.paths[path]
	if !ok {
		e = &experience{capacity: peak{window: learnedFor}, seen: make(map[lesson]taught)}
		p.paths[path] = e
	}
	passes := 1 - percent/100
	e.capacity.add(now, rate/passes)
	share := min(1, rate/(e.capacity.get(now)*passes))
	k := lesson{s, bucket(percent)}
	if before, ok := e.seen[k]; ok && now.Sub(before.at) < learnedFor {
		share = before.share + (share-before.share)/4
	}
	e.seen[k] = taught{share, now}
}

// Forget removes a path that no longer exists.
func (p *Predictor) Forget(path string) { delete(p.paths, path) }

// Condition is how a path is.
type Condition struct {
	Path       string
	Loss       float64       // percent
	Doubt      float64       // percent of loss that may be chance, see Counts.Doubt
	RTT        time.Duration // without queues; 0 if unknown
	Congestion bool          // its losses are congestion, see Congestion.Is
	Why        string        // why that is so
}

// Answer is a predictor's.
type Answer struct {
	Scheme Scheme // to use from now on
	Change bool   // it is another than before
	Reason string
	// Doubtful says that it would be another if Loss were sure.
	Doubtful bool
}

// Answer says which scheme to use in place of the current one. Variants name
// what each protocol that can be used is set up as; a protocol that is not in it
// cannot be used. Where loss is congestion one carrier is all there is: others
// keep their share of the link.
func (p *Predictor) Answer(now time.Time, c Condition, current Scheme, variants map[string]string) Answer {
	if p.toggle {
		return other(current, variants)
	}
	if c.Congestion {
		one := current
		one.Carriers = 1
		a := Answer{Scheme: one, Change: current.Carriers > 1}
		a.Reason = fmt.Sprintf("one carrier: loss %.1f %% is taken for congestion: %s", c.Loss, c.Why)
		return a
	}
	before := p.share(now, c, current)
	best, most := p.best(now, c, current, variants)
	a := Answer{Scheme: current}
	gain := gainProtocol
	if best.Protocol == current.Protocol {
		gain = gainCarriers
	}
	fewer := best.Protocol == current.Protocol && best.Carriers < current.Carriers
	if best == current || !fewer && most < before*(1+gain) {
		a.Reason = fmt.Sprintf("loss %.1f %%: %s carries %.0f %% of what passes, %s would carry %.0f %%", c.Loss, current, 100*before, best, 100*most)
		return a
	}
	if best.Protocol == current.Protocol && best.Carriers > current.Carriers && c.Doubt > 0 {
		// What chance alone suggests, chance takes back: each question would be
		// another throw of the dice.
		sure := c
		sure.Loss -= c.Doubt
		if p.share(now, sure, best) < p.share(now, sure, current)*(1+gain) {
			a.Doubtful = true
			a.Reason = fmt.Sprintf("loss %.1f %%, give or take %.1f: %s may be enough", c.Loss, c.Doubt, current)
			return a
		}
	}
	a.Scheme, a.Change = best, true
	a.Reason = fmt.Sprintf("loss %.1f %%, %s: %s is predicted to carry %.0f %% of what passes, %s %.0f %%", c.Loss, c.Why, best, 100*most, current, 100*before)
	return a
}

// best returns the scheme with the fewest carriers that comes near the most;
// among those the current protocol, then the one that carries more.
func (p *Predictor) best(now time.Time, c Condition, current Scheme, variants map[string]string) (Scheme, float64) {
	most := 0.0
	each := func(visit func(Scheme, float64)) {
		for n := 1; n <= mostCarriers; n++ {
			for _, protocol := range [...]string{current.Protocol, opposite(current.Protocol)} {
				if variant, ok := variants[protocol]; ok {
					s := Scheme{protocol, variant, n}
					visit(s, p.share(now, c, s))
				}
			}
		}
	}
	each(func(_ Scheme, share float64) { most = max(most, share) })
	chosen, carries := current, 0.0
	each(func(s Scheme, share float64) {
		switch {
		case share < most-nearBest:
		case carries == 0, s.Carriers == chosen.Carriers && chosen.Protocol != current.Protocol && share > carries:
			chosen, carries = s, share
		}
	})
	return chosen, carries
}

// share predicts what share of what passes the loss a scheme carries, 0 to 1.
func (p *Predictor) share(now time.Time, c Condition, s Scheme) float64 {
	e := p.paths[c.Path]
	if e != nil {
		if t, ok := e.seen[lesson{s, bucket(c.Loss)}]; ok && now.Sub(t.at) < learnedFor {
			return t.share
		}
	}
	share := measured(s, c.Loss)
	if e == nil || c.RTT <= 0 || c.Loss <= 0 || s.Variant == "bbr" {
		return share
	}
	// Windows that shrink with every loss carry MSS*1.22/(rtt*sqrt(p)) at most
	// (Mathis et al. 1997); on the 4 ms of the table that is no limit.
	if passes := e.capacity.get(now) * (1 - c.Loss/100); passes > 0 {
		rate := float64(s.Carriers) * packet * mathis / (c.RTT.Seconds() * math.Sqrt(c.Loss/100))
		share = min(share, rate/passes)
	}
	return share
}

// other is [MS] Algorithm 2 as it is printed.
func other(current Scheme, variants map[string]string) Answer {
	to := opposite(current.Protocol)
	variant, ok := variants[to]
	if !ok {
		return Answer{Scheme: current, Reason: to + " cannot be used here"}
	}
	return Answer{Scheme: Scheme{to, variant, 1}, Change: true, Reason: "the switch process goes from " + current.Protocol + " to " + to}
}

func opposite(protocol string) string {
	if protocol == SCTP {
		return TCP
	}
	return SCTP
}

func bucket(percent float64) int { return int(math.Round(percent / learnedBucket)) }

// String names the scheme: "tcp bbr, 4 carriers".
func (s Scheme) String() string {
	if s.Carriers > 1 {
		return fmt.Sprintf("%s %s, %d carriers", s.Protocol, s.Variant, s.Carriers)
	}
	return s.Protocol + " " + s.Variant
}
