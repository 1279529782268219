package steer

import "time"

// step does everything once and returns when to do so again.
func (s *Steer) step(now time.Time) time.Duration {
	s.follow(now)
	s.measure(now)
	s.judge(now)
	s.decide(now)
	s.tryProtocol(now)
	s.plan(now)
	s.settle(now)
	s.pace(now)
	s.publish(now)
	if s.moving || s.doubtful(now) {
		return tickMoving
	}
	return tickIdle
}
