package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
)

// Cut is a TCP link through the lab that can fall silent: nothing passes, and
// neither side gets a FIN or a RST, as when a radio goes out of reach. New
// connections are accepted by the kernel and lead nowhere until the link is
// restored.
type Cut struct {
	target   string
	rate     int // bytes/s in each direction of a connection; 0 for no limit
	listener net.Listener
	wg       sync.WaitGroup

	mu     sync.Mutex    // guards the fields below
	open   chan struct{} // closed while the link carries
	carry  bool
	conns  map[net.Conn]struct{}
	closed bool
}

// slowBuffer is how many bytes a slow link holds on each side, about.
const slowBuffer = 8 << 10

// NewCut listens on a port of its own and forwards to target, at rate bytes/s
// in each direction of a connection, or as fast as it can if rate is 0.
func NewCut(target string, rate int) (*Cut, error) {
	config := net.ListenConfig{}
	if rate > 0 {
		// A link that took in much more than it carries would hide how slow it
		// is. The buffer must be small before a connection comes to be.
		config.Control = func(_, _ string, c syscall.RawConn) (err error) {
			control := c.Control(func(fd uintptr) {
				err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, slowBuffer)
			})
			return errors.Join(control, err)
		}
	}
	l, err := config.Listen(context.Background(), "tcp", FreeAddress("127.0.0.1"))
	if err != nil {
		return nil, fmt.Errorf("make a link to %s: %w", target, err)
	}
	c := &Cut{
		target: target, rate: rate, listener: l,
		open: make(chan struct{}), carry: true, conns: make(map[net.Conn]struct{}),
	}
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
	if !c.wait() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	far, err := (&net.Dialer{}).DialContext(ctx, "tcp", c.target)
	if err != nil || !c.keep(far) {
		return
	}
	defer c.drop(far)
	if c.rate > 0 {
		far.(*net.TCPConn).SetWriteBuffer(slowBuffer)
	}
	var both sync.WaitGroup
	both.Go(func() { c.carryBytes(far, near) })
	both.Go(func() { c.carryBytes(near, far) })
	both.Wait()
}

// carryBytes copies from one side to the other while the link carries. The end
// of one side ends both, but only once the link carries it.
func (c *Cut) carryBytes(dst, src net.Conn) {
	buf := make([]byte, 16<<10)
	if c.rate > 0 {
		buf = buf[:slowBuffer/4]
	}
	for {
		n, err := src.Read(buf)
		if !c.wait() {
			return
		}
		if c.rate > 0 && n > 0 {
			pause(context.Background(), time.Duration(n)*time.Second/time.Duration(c.rate))
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
func (c *Cut) wait() bool {
	for {
		c.mu.Lock()
		open, carry, closed := c.open, c.carry, c.closed
		c.mu.Unlock()
		if carry || closed {
			return !closed
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
