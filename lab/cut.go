package lab

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"
)

// Cut is a TCP link through the lab that can fall silent: nothing passes, and
// neither side gets a FIN or a RST, as when a radio goes out of reach. New
// connections are accepted by the kernel and lead nowhere until the link is
// restored.
type Cut struct {
	target   string
	listener net.Listener
	wg       sync.WaitGroup

	mu     sync.Mutex    // guards the fields below
	open   chan struct{} // closed while the link carries
	carry  bool
	rate   int // bytes/s in each direction of a connection; 0 for no limit
	conns  map[net.Conn]struct{}
	closed bool
}

// NewCut listens on a port of its own and forwards to target.
func NewCut(target string) (*Cut, error) {
	l, err := net.Listen("tcp", FreeAddress("127.0.0.1"))
	if err != nil {
		return nil, fmt.Errorf("make a link to %s: %w", target, err)
	}
	c := &Cut{target: target, listener: l, open: make(chan struct{}), carry: true, conns: make(map[net.Conn]struct{})}
	close(c.open)
	c.wg.Go(c.accept)
	return c, nil
}

// Address is where the link begins.
func (c *Cut) Address() string { return c.listener.Addr().String() }

// Silence stops the link without a word to either side.
func (c *Cut) Silence() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.carry {
		c.carry, c.open = false, make(chan struct{})
	}
}

// Restore lets the link carry again, what was under way included.
func (c *Cut) Restore() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.carry {
		c.carry = true
		close(c.open)
	}
}

// Limit sets the link's speed for connections made from now on.
func (c *Cut) Limit(bytesPerSecond int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rate = bytesPerSecond
}

// Close takes the link down and resets what runs over it.
func (c *Cut) Close() error {
	c.mu.Lock()
	c.closed = true
	conns := c.conns
	c.conns = nil
	c.mu.Unlock()
	c.Restore()
	err := c.listener.Close()
	for conn := range conns {
		conn.Close()
	}
	c.wg.Wait()
	return err
}

func (c *Cut) accept() {
	for {
		near, err := c.listener.Accept()
		if err != nil {
			return
		}
		if !c.keep(near) {
			return
		}
		c.wg.Go(func() { c.join(near) })
	}
}

// join connects an accepted connection onwards and carries both directions.
func (c *Cut) join(near net.Conn) {
	defer c.drop(near)
	rate, ok := c.wait()
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	far, err := (&net.Dialer{}).DialContext(ctx, "tcp", c.target)
	if err != nil || !c.keep(far) {
		return
	}
	defer c.drop(far)
	if rate > 0 {
		// Small buffers, so that a slow link is seen where it begins.
		near.(*net.TCPConn).SetReadBuffer(16 << 10)
		far.(*net.TCPConn).SetWriteBuffer(16 << 10)
	}
	var both sync.WaitGroup
	both.Go(func() { c.carryBytes(far, near, rate) })
	both.Go(func() { c.carryBytes(near, far, rate) })
	both.Wait()
}

// carryBytes copies from one side to the other while the link carries. The end
// of one side ends both, but only once the link carries it.
func (c *Cut) carryBytes(dst, src net.Conn, rate int) {
	buf := make([]byte, 16<<10)
	if rate > 0 {
		buf = buf[:4<<10]
	}
	for {
		n, err := src.Read(buf)
		if _, ok := c.wait(); !ok {
			return
		}
		if rate > 0 && n > 0 {
			pause(context.Background(), time.Duration(n)*time.Second/time.Duration(rate))
		}
		if _, writeErr := dst.Write(buf[:n]); err == nil {
			err = writeErr
		}
		if err != nil {
			dst.Close()
			src.Close()
			return
		}
	}
}

// wait blocks while the link is silent; false when it was closed.
func (c *Cut) wait() (rate int, ok bool) {
	for {
		c.mu.Lock()
		open, carry := c.open, c.carry
		rate, ok = c.rate, !c.closed
		c.mu.Unlock()
		if carry || !ok {
			return rate, ok
		}
		<-open
	}
}

func (c *Cut) keep(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		conn.Close()
		return false
	}
	c.conns[conn] = struct{}{}
	return true
}

func (c *Cut) drop(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.conns, conn)
	conn.Close()
}
