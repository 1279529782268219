package ns2

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// event is one line of a trace, in the format for links,
//
//	r 0.515045 1 3 sctp 56 ------- 2 1.0 6.0 -1 2
//
// or in that for wireless nodes,
//
//	r 51.18520 _6_ AGT  --- 36 sctp 56 [13a 4 3 800] ------- [0:0 ...
type event struct {
	kind  byte    // '+' enqueued, '-' sent, 'r' received, 'd' or 'D' dropped, 's' sent by an agent
	at    float64 // seconds
	from  string  // the link's nodes; of a wireless event only to is set
	to    string
	layer string // of a wireless event: "AGT"
	proto string // "tcp", "ack", "sctp"
	bytes int    // with headers
	id    string // the same on all hops
}

// readEvents calls each with every event of a trace. Lines that begin like none
// are what ns prints for people.
func readEvents(r io.Reader, each func(event)) error {
	s := bufio.NewScanner(r)
	for s.Scan() {
		line := s.Text()
		if len(line) < 2 || line[1] != ' ' || !strings.ContainsRune("+-rdDs", rune(line[0])) {
			continue
		}
		e, err := parseEvent(line)
		if err != nil {
			return fmt.Errorf("read trace line %q: %w", line, err)
		}
		each(e)
	}
	if err := s.Err(); err != nil {
		return fmt.Errorf("read trace: %w", err)
	}
	return nil
}

func parseEvent(line string) (e event, err error) {
	f := strings.Fields(line)
	if len(f) < 8 {
		return e, fmt.Errorf("it has %d fields", len(f))
	}
	e.kind = f[0][0]
	if e.at, err = strconv.ParseFloat(f[1], 64); err != nil {
		return e, err
	}
	size := f[5]
	if wireless := strings.HasPrefix(f[2], "_"); wireless {
		e.to, e.layer = strings.Trim(f[2], "_"), f[3]
		e.id, e.proto, size = f[5], f[6], f[7]
	} else {
		if len(f) < 12 {
			return e, fmt.Errorf("it has %d fields", len(f))
		}
		e.from, e.to, e.proto, e.id = f[2], f[3], f[4], f[11]
	}
	if e.bytes, err = strconv.Atoi(size); err != nil {
		return e, err
	}
	return e, nil
}
