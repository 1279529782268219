package jetstream

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"sluice/collector"
	"sluice/collector/pack"
)

// The headers of a message.
const (
	// HeaderFirst is the sequence number of the message's first reading.
	HeaderFirst = "Sluice-First"
	// HeaderLast is the last sequence number that is complete with the message.
	HeaderLast = "Sluice-Last"
	// HeaderEpoch is the epoch of the gateway's store, 16 hexadecimal digits.
	HeaderEpoch = "Sluice-Epoch"
	// HeaderPart is "2/3" on a message that holds the second of three parts of
	// a body too large for one.
	HeaderPart = "Sluice-Part"
	// HeaderUnreadable is why the body is a segment set aside as it came.
	HeaderUnreadable = "Sluice-Unreadable"
	// HeaderContentType is a media type.
	HeaderContentType = "Content-Type"
)

// prefix begins every subject; its number changes if the schema does.
const prefix = "sluice.v1"

// Subject is where the readings of s are published:
// sluice.v1.<gateway>.<lane>.<epoch>, the gateway's id escaped as pack.Escape
// says, the epoch in 16 hexadecimal digits.
func Subject(s collector.Stream) string {
	return fmt.Sprintf("%s.%s.%s.%016x", prefix, pack.Escape(s.Gateway), s.Lane, s.Epoch)
}

func header(s collector.Stream, p pack.Pack) nats.Header {
	h := nats.Header{
		HeaderFirst:       {strconv.FormatUint(p.First, 10)},
		HeaderLast:        {strconv.FormatUint(complete(p), 10)},
		HeaderEpoch:       {fmt.Sprintf("%016x", s.Epoch)},
		HeaderContentType: {p.ContentType()},
	}
	if p.Parts > 1 {
		h[HeaderPart] = []string{fmt.Sprintf("%d/%d", p.Part, p.Parts)}
	}
	if p.Unreadable {
		h[HeaderUnreadable] = []string{headerText(p.Reason)}
	}
	return h
}

// headerText keeps a reason on one line: a line break would end the header. It
// is never empty, because a header without a value is easily overlooked.
func headerText(s string) string {
	if s == "" {
		return "unknown"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}

// complete is the last sequence number that is there once p is: a body cut into
// parts only counts with its last part.
func complete(p pack.Pack) uint64 {
	if p.Part < p.Parts {
		return p.First - 1
	}
	return p.Last
}
