package mqtt

import (
	"bufio"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

const (
	readBuffer   = 32 << 10
	writeTimeout = 15 * time.Second // for what the kernel's buffer does not take
	// maxUnsent bounds what waits for writing: acknowledgements of 4 bytes for
	// everything that can be outstanding, several times over.
	maxUnsent  = 1 << 20
	closeFlush = time.Second
	publish    = 3 // MQTT 3.1.1, 2.2.1
)

// conn is a broker's connection made fit for the client library, which reads
// each packet in several small reads, writes each acknowledgement by itself,
// and allocates whatever length a packet claims:
//
//   - reads are buffered;
//   - writes are collected and written together by one goroutine, so that
//     acknowledgements of one commit share a system call;
//   - a PUBLISH packet longer than limit is handed on cut to the limit.
type conn struct {
	net.Conn
	in    *bufio.Reader
	limit int // bytes of a packet behind its fixed header

	reading sync.Mutex // guards what follows and reading from Conn
	head    []byte     // rewritten fixed header still to be read
	body    int        // bytes of the packet still to be read
	skip    int        // bytes of the packet to throw away after body

	mu     sync.Mutex // guards what follows
	unsent []byte
	failed error
	closed bool
	wake   chan struct{} // holds one token while there is something to do
	done   chan struct{} // closed when the writer has ended
}

func newConn(c net.Conn, limit int) *conn {
	w := &conn{Conn: c, in: bufio.NewReaderSize(c, readBuffer), limit: limit,
		wake: make(chan struct{}, 1), done: make(chan struct{})}
	go w.write()
	return w
}

// Read returns the next bytes of the packet at hand.
func (c *conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	c.reading.Lock()
	defer c.reading.Unlock()
	if len(c.head) == 0 && c.body == 0 {
		if err := c.next(); err != nil {
			return 0, err
		}
	}
	if len(c.head) > 0 {
		n := copy(p, c.head)
		c.head = c.head[n:]
		return n, nil
	}
	n, err := c.in.Read(p[:min(len(p), c.body)])
	c.body -= n
	return n, err
}

// next reads the fixed header of the next packet.
func (c *conn) next() error {
	if c.skip > 0 {
		n, err := c.in.Discard(c.skip)
		c.skip -= n
		if err != nil {
			return err
		}
	}
	kind, err := c.in.ReadByte()
	if err != nil {
		return err
	}
	length, err := readLength(c.in)
	if err != nil {
		return err
	}
	c.body = length
	if length > c.limit {
		if kind>>4 != publish {
			return errors.New("packet: longer than any a broker has reason to send")
		}
		c.body, c.skip = c.limit, length-c.limit
	}
	c.head = appendLength(append(c.head[:0], kind), c.body)
	return nil
}

// readLength reads a remaining length (MQTT 3.1.1, 2.2.3).
func readLength(r io.ByteReader) (int, error) {
	n := 0
	for shift := 0; shift < 28; shift += 7 {
		b, err := r.ReadByte()
		if err != nil {
			return 0, err
		}
		n |= int(b&0x7f) << shift
		if b < 0x80 {
			return n, nil
		}
	}
	return 0, errors.New("packet: its length takes more than four bytes")
}

func appendLength(b []byte, n int) []byte {
	for ; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

// Write takes p for writing soon. An error is that of an earlier write.
func (c *conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.failed != nil:
		return 0, c.failed
	case c.closed:
		return 0, net.ErrClosed
	case len(c.unsent)+len(p) > maxUnsent:
		return 0, errors.New("broker does not take acknowledgements")
	}
	c.unsent = append(c.unsent, p...)
	c.signal()
	return len(p), nil
}

// signal wakes the writer; mu is held.
func (c *conn) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// write writes what Write took until the connection closes or fails.
func (c *conn) write() {
	defer close(c.done)
	var out []byte
	for range c.wake {
		c.mu.Lock()
		out, c.unsent = c.unsent, out[:0]
		closed := c.closed
		c.mu.Unlock()
		if len(out) > 0 {
			timeout := writeTimeout
			if closed {
				timeout = closeFlush
			}
			err := c.Conn.SetWriteDeadline(time.Now().Add(timeout))
			if err == nil {
				_, err = c.Conn.Write(out)
			}
			if err != nil {
				c.mu.Lock()
				c.failed = err
				c.mu.Unlock()
				c.Conn.Close() // so that the reader ends as well
				return
			}
		}
		if closed {
			return
		}
	}
}

// Close writes what is unsent and closes, within two seconds.
func (c *conn) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return net.ErrClosed
	}
	c.closed = true
	c.Conn.SetWriteDeadline(time.Now().Add(closeFlush)) // also for a write under way
	c.signal()
	c.mu.Unlock()
	<-c.done
	c.linger()
	return c.Conn.Close()
}

// linger reads to the end of what the broker sends. Closing a TCP socket that
// still has something to read resets the connection, and the broker may then
// throw away acknowledgements that it has not read yet.
func (c *conn) linger() {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	if c.Conn.SetReadDeadline(time.Now()) != nil { // ends a read under way
		return
	}
	c.reading.Lock()
	defer c.reading.Unlock()
	c.head, c.body, c.skip = nil, 0, 0
	if c.Conn.SetReadDeadline(time.Now().Add(closeFlush)) == nil {
		io.Copy(io.Discard, c.Conn)
	}
}
