package uplink

import (
	"sluice/reading"
)

const (
	// mergeBelow is the size in bytes below which neighbouring segments become
	// one: above it, what a second header and dictionary cost after compression
	// is less than one in a hundred, and not worth decoding for.
	mergeBelow = 1 << 10
	// mergeMost bounds the readings of a merged segment, and so the memory that
	// decoding it takes on both ends.
	mergeMost = 4096
	// segmentHead is more than the numbers before a segment take in a frame.
	segmentHead = 32
)

// packer makes frames' segments of stored ones: it merges small ones, splits
// those that are larger than a frame may be, and corrects times. It reuses its
// memory: what pack returns is valid until the next call.
type packer struct {
	// correct fixes unsynchronised times in place and says whether it changed
	// any; nil if nothing can.
	correct func([]reading.Reading) bool

	decoder  reading.Decoder
	encoder  reading.Encoder
	out      []reading.Segment
	outLen   int
	readings []reading.Reading // decoded, to become one segment
	first    uint64            // sequence number of readings[0]
	readLen  int               // bytes that readings took as stored
	encoded  []byte
}

// pack takes what is after a sequence number, up to and with another, from
// segments, to about size bytes. The last sequence number it reached is
// returned; it is upto if the segments show that nothing is left before that.
func (p *packer) pack(segments []reading.Segment, after, upto uint64, size int) (out []reading.Segment, through uint64) {
	p.out, p.outLen, p.encoded = p.out[:0], 0, p.encoded[:0]
	through = after
	for i, s := range segments {
		if s.Last() <= after {
			continue
		}
		if s.First > upto {
			p.flush()
			return p.out, upto
		}
		room := size - p.outLen - p.readLen
		split := len(s.Data) > room
		if split && (len(p.out) > 0 || len(p.readings) > 0) {
			break
		}
		whole := s.First > after && s.Last() <= upto
		if whole && !split && !p.mergeable(segments, i) && !p.correctable(s) {
			p.pass(s)
			through = s.Last()
			continue
		}
		last, ok := p.take(s, max(after+1, s.First), min(upto, s.Last()), room, split)
		through = last
		if !ok || split {
			break
		}
	}
	p.flush()
	return p.out, through
}

// mergeable says whether segment i is small and next to another small one.
func (p *packer) mergeable(segments []reading.Segment, i int) bool {
	s := segments[i]
	if len(s.Data) >= mergeBelow {
		return false
	}
	if len(p.readings) > 0 && p.first+uint64(len(p.readings)) == s.First {
		return true
	}
	return i+1 < len(segments) && segments[i+1].First == s.Last()+1 && len(segments[i+1].Data) < mergeBelow
}

func (p *packer) correctable(s reading.Segment) bool {
	if p.correct == nil {
		return false
	}
	_, unsynchronised, err := reading.BatchInfo(s.Data)
	return err == nil && unsynchronised
}

// pass lets a segment through as it is.
func (p *packer) pass(s reading.Segment) {
	p.flush()
	p.out = append(p.out, s)
	p.outLen += segmentHead + len(s.Data)
}

// take decodes readings first to last of a segment and adds them to those to be
// encoded; fewer if they must fit room. It returns the last one taken. A segment
// that cannot be decoded passes as it is, for the collector to set aside, and ok
// is false if it did not fit.
func (p *packer) take(s reading.Segment, first, last uint64, room int, split bool) (through uint64, ok bool) {
	if len(p.readings) > 0 && (p.first+uint64(len(p.readings)) != first || len(p.readings)+s.Count > mergeMost) {
		p.flush()
	}
	start := len(p.readings)
	all, err := p.decoder.Decode(p.readings, s.Data)
	if err != nil || len(all)-start != s.Count {
		clear(all[start:])
		p.readings = all[:start]
		p.pass(reading.Segment{First: first, Count: int(last - first + 1), Data: s.Data})
		return last, !split
	}
	if split {
		fit := max(1, int(int64(s.Count)*int64(room)/int64(len(s.Data))))
		last = min(last, first+uint64(fit)-1)
	}
	kept := copy(all[start:], all[start+int(first-s.First):start+int(last-s.First)+1])
	clear(all[start+kept:])
	p.readings = all[:start+kept]
	if start == 0 {
		p.first = first
	}
	p.readLen += len(s.Data)
	return last, true
}

// flush encodes the readings taken so far as one segment.
func (p *packer) flush() {
	if len(p.readings) == 0 {
		return
	}
	if p.correct != nil {
		p.correct(p.readings)
	}
	start := len(p.encoded)
	p.encoded = p.encoder.Append(p.encoded, p.readings)
	data := p.encoded[start:len(p.encoded):len(p.encoded)]
	p.out = append(p.out, reading.Segment{First: p.first, Count: len(p.readings), Data: data})
	p.outLen += segmentHead + len(data)
	clear(p.readings) // let go of the strings
	p.readings, p.readLen = p.readings[:0], 0
}
