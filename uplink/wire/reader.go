package wire

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// Reader takes messages from a stream.
type Reader struct {
	src *bufio.Reader
	max int
	buf []byte
}

// NewReader reads messages of at most max bytes from r, which it buffers.
func NewReader(r io.Reader, max int) *Reader {
	return &Reader{src: bufio.NewReaderSize(r, 4<<10), max: max}
}

// Limit changes the longest message that is read from now on.
func (r *Reader) Limit(max int) { r.max = max }

// Buffered is the stream behind the messages read so far: what a peer sends
// compressed after its Hello is read from here.
func (r *Reader) Buffered() io.Reader { return r.src }

// Next returns the next message of a known type; its body is valid until the
// next call. It returns io.EOF when the stream ends between two messages,
// io.ErrUnexpectedEOF when it ends within one, ErrTooLong, ErrUnknown, or the
// stream's own error.
func (r *Reader) Next() (Type, []byte, error) {
	for {
		length, err := r.length()
		if err != nil {
			return 0, nil, err
		}
		if err := r.fill(length); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return 0, nil, err
		}
		t := Type(r.buf[0])
		if TypeHello <= t && t <= TypeTunnelReply {
			return t, r.buf[1:], nil
		}
		if t&MayIgnore == 0 {
			return 0, nil, fmt.Errorf("type %d: %w", t, ErrUnknown)
		}
	}
}

// fill reads n bytes. The buffer grows with what has really arrived, so that a
// length alone claims no memory.
func (r *Reader) fill(n int) error {
	const step = 64 << 10
	r.buf = r.buf[:0]
	for len(r.buf) < n {
		have := len(r.buf)
		more := min(n-have, max(step, have))
		if cap(r.buf) < have+more {
			r.buf = append(make([]byte, 0, have+more), r.buf...)
		}
		r.buf = r.buf[:have+more]
		if _, err := io.ReadFull(r.src, r.buf[have:]); err != nil {
			return err
		}
	}
	return nil
}

// length reads the uvarint before a message.
func (r *Reader) length() (int, error) {
	var length uint64
	for shift := 0; ; shift += 7 {
		b, err := r.src.ReadByte()
		if errors.Is(err, io.EOF) && shift > 0 {
			return 0, io.ErrUnexpectedEOF
		}
		if err != nil {
			return 0, err
		}
		length |= uint64(b&0x7f) << shift
		switch {
		case b >= 0x80 && shift < 7*(lengthSpace-1):
		case b >= 0x80 || length == 0:
			return 0, fmt.Errorf("message length: %w", ErrMalformed)
		case length > uint64(r.max):
			return 0, fmt.Errorf("message of %d bytes, at most %d: %w", length, r.max, ErrTooLong)
		default:
			return int(length), nil
		}
	}
}
