// Package pack cuts deliveries into packs: what an output publishes as one
// message.
package pack

import (
	"iter"

	"sluice/collector"
	"sluice/reading"
	"sluice/reading/senml"
)

// Pack is a run of consecutive readings as a SenML pack in JSON (RFC 8428), or
// an unreadable segment as it came.
type Pack struct {
	First, Last uint64 // sequence numbers; reading i of Body has First+i
	Body        []byte

	// A body too large for one message is cut into Parts, of which this is
	// number Part, from 1. All parts have the same First and Last. Both are 1
	// on a whole body.
	Part, Parts int

	Unreadable bool   // Body is a segment that could not be decoded
	Reason     string // and this is why
}

// ContentType is the media type of Body.
func (p Pack) ContentType() string {
	if p.Unreadable {
		return "application/octet-stream"
	}
	return senml.JSON
}

// Limits bound a pack.
type Limits struct {
	Readings int // how many readings at most
	Bytes    int // length of Body at most
}

// Cut yields ds as packs within limits, in order. Neighbouring deliveries
// share packs where their sequence numbers join. Bodies are the receiver's.
func Cut(ds []collector.Delivery, limits Limits) iter.Seq[Pack] {
	return func(yield func(Pack) bool) {
		c := cutter{limits: limits, yield: yield}
		for _, d := range ds {
			if !c.add(d) {
				return
			}
		}
		c.flush()
	}
}

// cutter gathers readings until they fill a pack. Its methods return false when
// the receiver wants no more.
type cutter struct {
	limits Limits
	yield  func(Pack) bool

	first uint64            // of run
	run   []reading.Reading // consecutive readings not yielded yet
	size  int               // estimated bytes of run, rendered
}

func (c *cutter) add(d collector.Delivery) bool {
	if d.Unreadable != nil {
		return c.flush() && c.parts(Pack{First: d.First, Last: d.Last(),
			Body: d.Unreadable, Unreadable: true, Reason: d.Reason})
	}
	if len(c.run) > 0 && c.first+uint64(len(c.run)) != d.First && !c.flush() {
		return false
	}
	// Most deliveries fit, or are the only one: they are not copied.
	for start := 0; start < len(d.Readings); {
		if len(c.run) == 0 {
			c.first = d.First + uint64(start)
		}
		end := start
		for end < len(d.Readings) && len(c.run)+end-start < c.limits.Readings {
			n := estimate(&d.Readings[end])
			if c.size+n > c.limits.Bytes && len(c.run)+end-start > 0 {
				break
			}
			c.size += n
			end++
		}
		if len(c.run) == 0 {
			c.run = d.Readings[start:end:end]
		} else {
			c.run = append(c.run, d.Readings[start:end]...)
		}
		start = end
		if start < len(d.Readings) && !c.flush() {
			return false
		}
	}
	return true
}

// estimate is about how many bytes of a pack r takes.
func estimate(r *reading.Reading) int {
	return 56 + len(r.Device) + len(r.Name) + len(r.Unit) + len(r.Value.Raw())*4/3
}

func (c *cutter) flush() bool {
	run, first, size := c.run, c.first, c.size
	c.run, c.size = nil, 0
	if len(run) == 0 {
		return true
	}
	return c.render(first, run, size)
}

// render yields run as one pack, or halves it when the estimate was too low.
func (c *cutter) render(first uint64, run []reading.Reading, size int) bool {
	body := senml.AppendJSON(make([]byte, 0, min(size, c.limits.Bytes)), run)
	if len(body) > c.limits.Bytes && len(run) > 1 {
		half := len(run) / 2
		return c.render(first, run[:half], size/2) && c.render(first+uint64(half), run[half:], size/2)
	}
	return c.parts(Pack{First: first, Last: first + uint64(len(run)) - 1, Body: body})
}

func (c *cutter) parts(p Pack) bool {
	body := p.Body
	p.Parts = max(1, (len(body)+c.limits.Bytes-1)/c.limits.Bytes)
	for p.Part = 1; p.Part <= p.Parts; p.Part++ {
		n := min(c.limits.Bytes, len(body))
		p.Body, body = body[:n:n], body[n:]
		if !c.yield(p) {
			return false
		}
	}
	return true
}
