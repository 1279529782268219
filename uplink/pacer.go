package uplink

import "time"

const (
	// slackLeast is how long what waits in the path may keep it busy: longer than
	// a timer and an acknowledgement are late. A path of a long round trip, or an
	// uneven one, gets more.
	slackLeast = 40 * time.Millisecond
	slackMost  = 250 * time.Millisecond
	// jitterGain makes the slack the mean of delays that spread evenly, since with
	// it an eighth of their spread is beyond it on average.
	jitterGain = 4
	// baseMemory is how long the shortest delay counts. Then the path is left to
	// run nearly empty for one frame, to see whether it still is (as BBR's
	// ProbeRTT, draft-ietf-ccwg-bbr, section 5.3.4, which has to empty more).
	baseMemory = 10 * time.Second
	// pollLeast and pollMost bound the wait until the link is asked again what has
	// been acknowledged, of which nothing tells.
	pollLeast = time.Millisecond
	pollMost  = 10 * time.Millisecond
	// startGain lets the rate double each round trip until it grows no more;
	// flatRounds round trips with less than grown times as much say so (as BBR's
	// Startup, section 5.3.1).
	startGain  = 2
	grown      = 1.25
	flatRounds = 3
	// A delay longer than the shortest by an eighth of it, within these bounds, says
	// that the path fills (as HyStart++, RFC 9406, section 4.2).
	fillLeast = 4 * time.Millisecond
	fillMost  = 16 * time.Millisecond
	// packetUsual is a packet's worth, where the carrier does not tell.
	packetUsual = 1400
	marksMost   = 128
)

// pacer says when a link may be given another frame, so that the path is kept
// busy and no long queue forms in it: an alarm cannot overtake what is there. It
// has a model of the path, a rate and a delay, from watching what the peer's
// transport acknowledges. That knows nothing of how fast the collector's outputs
// are, and counts bytes as they are on the wire, unlike the session's own
// acknowledgements. The transport cannot be left to do it: a sender that never
// gives it much has it take any path for a fast one.
//
// It is a policy: it neither reads the clock nor asks the carrier.
type pacer struct {
	packet  int    // bytes
	out     uint64 // bytes given to the carrier
	acked   uint64 // of these, acknowledged
	unacked int    // -1 if the carrier cannot tell
	window  int    // bytes that the transport lets be on their way, 0 if unknown
	seenAt  time.Time

	ackedAt time.Time // when acked last grew
	sentAt  time.Time // when what was acknowledged last had been given
	marks   []mark    // frames of which nothing is acknowledged yet, at most marksMost

	recent, before float64 // the most of this half of rateMemory and of the last, bytes a second
	halfAt         time.Time

	base   time.Duration // the shortest delay of late: the path's own
	baseAt time.Time
	jitter time.Duration // mean delay beyond what base and queue explain
	drain  bool          // let the path run empty, base may be outdated

	framed, wired float64 // bytes of the last frames before and after compression
	frame         int     // bytes of the last frame before
	frameStart    uint64  // bytes given before it

	wakeAt time.Time     // when the frame that had to wait is looked at again
	late   time.Duration // how much later than that it was, on average: the gateway is busy

	held     bool    // a frame had to wait in this round
	windowed bool    // one waited for the transport's window
	roundEnd uint64  // the round is over when this much is acknowledged
	full     float64 // the rate that the path showed when it last had grown
	flat     int     // rounds since
}

// mark is what the model was when a frame was given to the carrier.
type mark struct {
	start   uint64 // bytes given before it
	at      time.Time
	acked   uint64
	unacked int
	ackedAt time.Time
	sending time.Duration // since what was acknowledged last had been given
	clear   bool          // the path was left to run empty before
	over    int           // bytes of those before it that the transport's window kept back
}

// observe takes in what a carrier says of itself while nothing is being written.
func (p *pacer) observe(now time.Time, info Info) {
	gap := now.Sub(p.seenAt)
	p.seenAt = now
	p.packet = info.Packet
	if p.packet == 0 {
		p.packet = packetUsual
	}
	p.out, p.unacked, p.window = info.BytesOut, info.Unacked, info.Window
	if info.Unacked < 0 {
		return
	}
	acked := info.BytesOut - min(uint64(info.Unacked), info.BytesOut)
	if acked <= p.acked {
		return
	}
	p.acked, p.ackedAt = acked, now
	n := 0
	for n < len(p.marks) && p.marks[n].start < acked {
		n++
	}
	if n == 0 {
		return
	}
	m := p.marks[n-1]
	p.marks = append(p.marks[:0], p.marks[n:]...)
	p.sentAt = m.at
	queued := p.measureDelay(now, m, gap)
	p.measureRate(now, m, queued)
	p.endRound(m, queued)
}

// measureDelay takes in how long the first bytes of a frame took, at most: they
// may have been acknowledged at any time in the gap since the link was asked
// before. It reports whether they must have waited in a queue.
func (p *pacer) measureDelay(now time.Time, m mark, gap time.Duration) (queued bool) {
	d := now.Sub(m.at)
	if p.base == 0 || d < p.base || m.clear {
		p.base, p.baseAt = d, now
	}
	if d <= p.base+p.base/16+time.Millisecond {
		p.baseAt = now
	}
	sharp := gap <= max(pollMost*3/2, d/8)
	d -= p.take(m.over)
	lumps := p.take(2 * p.packet) // which one acknowledgement may be for
	if d-gap > p.base+min(max(fillLeast, p.base/8), fillMost)+lumps {
		p.flat = flatRounds
	}
	if !sharp {
		return false
	}
	excess := d - max(p.base, p.take(m.unacked)) - lumps
	p.jitter += (min(max(0, excess), slackMost/jitterGain) - p.jitter) / 8
	return d > p.base+2*p.slack()+lumps
}

// measureRate takes in what was acknowledged since a frame was given, in that
// time, or in the time that it took to give, if that is longer
// (draft-cheng-iccrg-delivery-rate-estimation). The most counts, as the path may
// not have been busy all the time; but if there was a queue, it was.
func (p *pacer) measureRate(now time.Time, m mark, queued bool) {
	took := max(now.Sub(m.ackedAt), m.sending, slackLeast)
	rate := float64(p.acked-m.acked) / took.Seconds()
	if now.Sub(p.halfAt) > rateMemory/2 {
		p.before, p.recent, p.halfAt = p.recent, 0, now
	}
	p.recent = max(p.recent, rate)
	if queued {
		p.before, p.recent = 0, rate
	}
}

// endRound sees, once a round trip, whether the rate still grows.
func (p *pacer) endRound(m mark, queued bool) {
	if queued {
		p.flat = flatRounds
	}
	if m.start < p.roundEnd {
		return
	}
	switch rate := p.rate(); {
	case p.windowed: // the rate is the transport's choice, which may still grow
	case !p.held: // nothing was found out about the path
		p.full, p.flat = 0, 0
	case rate >= p.full*grown:
		p.full, p.flat = rate, 0
	default:
		p.flat++
	}
	p.held, p.windowed, p.roundEnd = false, false, p.out
}

// sent notes that a frame of some bytes before compression is given to the
// carrier, observed just now.
func (p *pacer) sent(now time.Time, bytes int) {
	if p.unacked < 0 {
		return
	}
	if p.frame > 0 {
		p.framed += float64(p.frame) - p.framed/8
		p.wired += float64(p.out-p.frameStart) - p.wired/8
	}
	p.frame, p.frameStart = bytes, p.out
	if p.unacked == 0 || p.ackedAt.IsZero() {
		// The time in which there was nothing to send says nothing; what a path
		// was long ago, little.
		if now.Sub(p.ackedAt) > rateMemory {
			p.before, p.recent, p.flat = 0, 0, 0
		}
		p.ackedAt, p.sentAt = now, now
	}
	over := 0
	if p.window > 0 {
		over = max(0, p.unacked+p.packet-p.window)
	}
	p.windowed = p.windowed || over > 0
	if len(p.marks) == marksMost {
		return
	}
	clear := p.drain && p.unacked <= p.room() // an alarm may come before
	if clear {
		p.drain, p.baseAt = false, now
	}
	p.marks = append(p.marks, mark{start: p.out, at: now, acked: p.acked, unacked: p.unacked, ackedAt: p.ackedAt,
		sending: now.Sub(p.sentAt), clear: clear, over: over})
}

// wait is how long to keep back what is not an alarm, 0 for not at all. The
// carrier has been observed just now.
func (p *pacer) wait(now time.Time) time.Duration {
	if late := now.Sub(p.wakeAt); !p.wakeAt.IsZero() && late >= 0 {
		p.late += (min(late, slackMost/8) - p.late) / 8
		p.wakeAt = time.Time{}
	}
	if p.unacked <= 0 {
		return 0
	}
	if !p.drain && p.base > 0 && now.Sub(p.baseAt) > baseMemory {
		p.drain = true
	}
	over := p.unacked - p.room()
	if over <= 0 {
		return 0
	}
	p.held = true
	wait := min(max(pollLeast, p.take(over)), pollMost)
	p.wakeAt = now.Add(wait)
	return wait
}

// room is how many bytes may be unacknowledged before another frame. One packet
// more than the path takes may have arrived: receivers acknowledge every other one
// (RFC 5681, section 4.2).
func (p *pacer) room() int {
	time := p.base + p.slack()
	switch {
	case p.drain:
		return int(p.rate() * (p.base * 3 / 4).Seconds())
	case p.flat < flatRounds:
		time *= startGain
	}
	return p.packet + int(p.rate()*time.Seconds())
}

// slack is how long the queue in the path may be.
func (p *pacer) slack() time.Duration {
	return min(max(slackLeast, p.base/4, jitterGain*p.jitter)+2*p.late, slackMost)
}

// usual is how long what is given to the carrier takes to be acknowledged, with the
// queue that is allowed, if nothing is lost; 0 while that is unknown.
func (p *pacer) usual() time.Duration {
	if p.unacked < 0 || p.base == 0 {
		return 0
	}
	return 2*p.base + p.slack()
}

// take is how long the path takes to send some bytes.
func (p *pacer) take(bytes int) time.Duration {
	rate := p.rate()
	if rate == 0 {
		return 0
	}
	return time.Duration(float64(bytes) / rate * float64(time.Second))
}

// frameRate is the rate in bytes a second before compression, 0 while unknown.
func (p *pacer) frameRate() float64 {
	if p.wired == 0 {
		return 0
	}
	return p.rate() * p.framed / p.wired
}

// rate is bytes a second on the wire, 0 while nothing is known.
func (p *pacer) rate() float64 { return max(p.before, p.recent) }
