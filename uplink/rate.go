package uplink

import "time"

// rateMemory is how long the best sample counts: long enough to bridge acks
// that come in bunches, short enough to follow a link that became slow.
const rateMemory = 3 * time.Second

// meter estimates what a link delivers, in frame bytes a second, from
// acknowledgements: the most that was acknowledged, between the sending of a
// frame and its acknowledgement, in time, or in the time that it took to send, if
// that is longer: acks that were held up and come in bunches are not a fast link
// (as the delivery rate samples of draft-cheng-iccrg-delivery-rate-estimation).
type meter struct {
	delivered   int64
	deliveredAt time.Time
	sentAt      time.Time // when what was delivered last had been sent
	best        float64
	bestAt      time.Time
}

// sample is what the meter showed when a frame was sent.
type sample struct {
	delivered int64
	at        time.Time
	sentAt    time.Time // when the frame was sent
	sending   time.Duration
}

// sent returns what to keep with a frame that is sent now. idle says that
// nothing else is in flight: the time before must not count.
func (m *meter) sent(now time.Time, idle bool) sample {
	if idle || m.deliveredAt.IsZero() {
		m.deliveredAt, m.sentAt = now, now
	}
	return sample{delivered: m.delivered, at: m.deliveredAt, sentAt: now, sending: now.Sub(m.sentAt)}
}

// acked counts a frame of some bytes as delivered. One that was sent again while
// its first copy was on its way does not tell how fast the link is.
func (m *meter) acked(now time.Time, bytes int, s sample, again bool) {
	m.delivered += int64(bytes)
	m.deliveredAt, m.sentAt = now, s.sentAt
	if again {
		return
	}
	took := max(now.Sub(s.at), s.sending)
	if took < time.Millisecond {
		return // too short to divide by
	}
	rate := float64(m.delivered-s.delivered) / took.Seconds()
	if rate >= m.best || now.Sub(m.bestAt) > rateMemory {
		m.best, m.bestAt = rate, now
	}
}

// rate is bytes a second, 0 while nothing is known.
func (m *meter) rate() float64 { return m.best }
