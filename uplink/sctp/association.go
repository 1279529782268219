package sctp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"sluice/uplink"
)

const (
	// messageMost holds a TLS record of 16 KiB whole, so that a record is one
	// message; longer ones would be delivered in parts.
	messageMost = 16<<10 + 512
	// closeReads bounds what is read and thrown away at a Close.
	closeReads = 1024
	// tuneEvery is how often the timers follow the round trip.
	tuneEvery = time.Second
	// roomEvery is less than the 10 ms of the link's rate that are usually left
	// unsent, so that these do not run out in between.
	roomEvery   = 3 * time.Millisecond
	eventsAhead = 64
	// shortened is by how many bytes a first chunk may be, see Write.
	shortened = 16
)

// Association is a byte stream over one SCTP association, without encryption.
// As with every net.Conn, one Read and one Write may run at once, and Close ends
// both.
type Association struct {
	sock   *socket
	tuning Tuning
	tick   time.Duration
	local  []netip.Addr // local[i] goes with remote.IPs[i], if dialled so
	from   Addr         // as it was at the start
	remote Addr

	in, out  atomic.Uint64
	limit    atomic.Int64 // LimitUnsent's bytes, 0 for no limit
	events   chan Event
	unread   atomic.Uint64 // events dropped
	restarts atomic.Bool   // the peer began anew: the stream is broken

	note     []byte // the start of a notification; the reader's
	fragment int    // bytes of a message in a full chunk; the writer's
	chunks   uint64 // given to the kernel, ever; the writer's
	memory   chunkMemory

	mu    sync.Mutex // guards what follows
	floor time.Duration
	tuned time.Time  // when the floor was last compared with the round trip
	next  netip.Addr // becomes primary with its first sign of life
}

var _ net.Conn = (*Association)(nil)

// newAssociation takes an established socket.
func newAssociation(s *socket, t Tuning, local []netip.Addr, remote Addr) *Association {
	if t.timers == (timers{}) {
		t.timers = appliance()
	}
	a := &Association{sock: s, tuning: t, tick: tick(), remote: remote, events: make(chan Event, eventsAhead), floor: t.timers.least, fragment: 1}
	if len(local) == len(remote.IPs) {
		a.local = local
	}
	a.from = a.ask(optLocalAddrs)
	if len(remote.IPs) == 0 {
		a.remote = a.ask(optPeerAddrs)
	}
	return a
}

// ask returns the addresses of one end, none once the association is gone.
func (a *Association) ask(option int) Addr {
	found, err := a.sock.addresses(option)
	if err != nil {
		return Addr{}
	}
	e, _ := endpoint(found)
	return e
}

// Read implements net.Conn. Borders of messages do not show.
func (a *Association) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		n, note, last, err := a.sock.receive(p)
		switch {
		case err != nil:
			return 0, a.failed("read", err)
		case note:
			if a.notify(p[:n], last); a.restarts.Load() {
				return 0, a.failed("read", syscall.ECONNRESET)
			}
		case n == 0:
			return 0, io.EOF
		default:
			a.in.Add(uint64(n))
			return n, nil
		}
	}
}

// notify takes a part of a notification, which a small buffer may have split.
func (a *Association) notify(part []byte, last bool) {
	if a.note = append(a.note, part...); !last {
		return
	}
	e, ok, err := parseEvent(a.note)
	a.note = a.note[:0]
	if err != nil || !ok {
		return // of a newer kernel's kind: nothing depends on it
	}
	switch e.Kind {
	case AssociationRestarted:
		a.restarts.Store(true)
	case PathUp:
		a.mu.Lock()
		waited := e.Path == a.next
		a.mu.Unlock()
		if waited {
			_ = a.SetPrimary(e.Path) // whoever gave the order sees the paths
		}
	}
	select {
	case a.events <- e:
	default:
		a.unread.Add(1)
	}
}

// Events returns the kernel's notifications, which a Read comes upon. When
// nobody takes them they are dropped; the channel is never closed.
func (a *Association) Events() <-chan Event { return a.events }

// EventsDropped is how many notifications nobody took in time.
func (a *Association) EventsDropped() uint64 { return a.unread.Load() }

// Write implements net.Conn. It returns when the kernel has taken everything.
func (a *Association) Write(p []byte) (n int, err error) {
	if st, err := a.sock.status(); err == nil {
		a.fragment = max(st.fragment, 1)
		a.followRTT(st)
	}
	for len(p) > 0 {
		if a.restarts.Load() {
			return n, a.failed("write", syscall.ECONNRESET)
		}
		message := p[:min(len(p), messageMost)]
		err := a.awaitRoom()
		before, known := a.sock.queued()
		if err == nil {
			err = a.sock.send(message)
		}
		if err != nil {
			return n, a.failed("write", err)
		}
		chunks := (len(message) + a.fragment - 1) / a.fragment
		// When nothing waits, the first chunk of several may be cut shorter, for an
		// acknowledgement, and leave one more than expected.
		surely := chunks == 1 || len(message)+shortened <= chunks*a.fragment
		if after, err := a.sock.queued(); surely && known == nil && err == nil {
			a.memory.learn(a.fragment, chunks, after-before)
		}
		a.chunks += uint64(chunks)
		a.out.Add(uint64(len(message)))
		p, n = p[len(message):], n+len(message)
	}
	return n, nil
}

// LimitUnsent implements uplink.Carrier.
func (a *Association) LimitUnsent(bytes int) { a.limit.Store(int64(bytes)) }

// awaitRoom waits while more than the limit is not on its way yet. The socket's
// own limit counts what is in flight as well, which is for the congestion window.
// It looks again and again because the kernel wakes a writer only when chunks are
// acknowledged without a gap before them, and at a loss sends long before that.
func (a *Association) awaitRoom() error {
	for {
		limit := a.limit.Load()
		if limit == 0 || int64(a.unsent()) < limit {
			return nil
		}
		time.Sleep(roomEvery)
		if err := a.sock.mayWrite(); err != nil {
			return err
		}
	}
}

// unsent is how many bytes the kernel was given and has not sent yet. It counts
// the chunks sent, and cuts a message as we expect it to, but for a first chunk
// that is sometimes cut shorter when nothing waits: then the count is set right.
func (a *Association) unsent() int {
	c, err := a.sock.counters()
	if err != nil {
		return 0 // the association is gone, as the write will find
	}
	a.chunks = max(a.chunks, c.sent)
	return int(a.chunks-c.sent) * a.fragment
}

// unacked estimates the bytes that the peer's kernel has not acknowledged, from
// the memory that they take, -1 if unknown. It is right for chunks that fill
// their packets and an upper bound for small ones.
func (a *Association) unacked() int {
	written := a.out.Load()
	memory, err := a.sock.queued()
	if err != nil {
		return -1
	}
	return int(min(a.memory.bytes(memory), written))
}

// followRTT moves the floor of the retransmission timeout with the primary
// path's round trip.
func (a *Association) followRTT(st status) {
	if a.tuning.kernel {
		return
	}
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.Sub(a.tuned) < tuneEvery {
		return
	}
	if st.primary.srtt == 0 {
		return // nothing is measured yet
	}
	a.tuned = now
	a.setFloor(time.Duration(st.primary.srtt) * a.tick)
}

// setFloor sets the floor for a round trip. The caller holds mu, or is the only
// one to know the association.
func (a *Association) setFloor(rtt time.Duration) {
	v := a.tuning.timers
	floor := v.floor(rtt)
	if change := floor - a.floor; change.Abs() < a.floor/8 {
		return
	}
	if a.sock.set(optRTOInfo, rtoInfo(0, floor, v.ceiling(floor))) == nil {
		a.floor = floor
	}
}

// Info measures the association.
func (a *Association) Info() uplink.Info {
	info := uplink.Info{Kind: "sctp", BytesIn: a.in.Load(), BytesOut: a.out.Load(), Unacked: -1}
	st, err := a.sock.status()
	if err != nil {
		return info
	}
	info.RTT = time.Duration(st.primary.srtt) * a.tick
	info.Unacked, info.Window = a.unacked(), int(st.primary.window)
	if c, err := a.sock.counters(); err == nil {
		info.Sent, info.Resent = c.sent, c.resent
	}
	peers, err := a.sock.addresses(optPeerAddrs)
	if err != nil {
		return info
	}
	for _, peer := range peers {
		p, err := a.sock.pathInfo(peer)
		if err != nil {
			continue // removed just now
		}
		info.Paths = append(info.Paths, uplink.PathInfo{
			Local:   a.localFor(peer.Addr()),
			Remote:  peer.Addr(),
			Primary: peer.Addr() == st.primary.path.Addr(),
			State:   p.state.String(),
			RTT:     time.Duration(p.srtt) * a.tick,
			RTO:     p.rto,
			Window:  int(p.window),
			MTU:     int(p.mtu),
		})
	}
	return info
}

// localFor is the own address that was named for a path.
func (a *Association) localFor(remote netip.Addr) netip.Addr {
	if i := slices.Index(a.remote.IPs, remote); i >= 0 && a.local != nil {
		return a.local[i]
	}
	return netip.Addr{}
}

// SetPrimary sends by the path to a peer's address from now on, and asks the
// peer to use the same path in its direction. A path that is not active is asked
// for a sign of life, and becomes primary when it gives one: the kernel would
// not use it earlier, and would take the order back at the next timeout.
func (a *Association) SetPrimary(remote netip.Addr) error {
	remote = remote.Unmap()
	path := netip.AddrPortFrom(remote, a.remote.Port)
	p, err := a.sock.pathInfo(path)
	if err != nil {
		return fmt.Errorf("set primary path to %s: %w", remote, err)
	}
	a.mu.Lock()
	if a.next = remote; p.state == pathActive {
		a.next = netip.Addr{}
	}
	a.mu.Unlock()
	if p.state != pathActive {
		err := a.sock.set(optPathParams, pathParams{path: path, flags: heartbeatDemand}.bytes())
		if err != nil {
			return fmt.Errorf("ask path to %s for a sign of life: %w", remote, err)
		}
		return nil
	}
	if err := a.sock.set(optPrimary, prim(path)); err != nil {
		return fmt.Errorf("set primary path to %s: %w", remote, err)
	}
	if local := a.localFor(remote); local.IsValid() {
		// A peer that takes no address changes keeps its own primary path.
		_ = a.sock.set(optSetPeerPrimary, prim(netip.AddrPortFrom(local, a.from.Port)))
	}
	return nil
}

// SetHeartbeat changes how often a path that carries nothing is asked whether it
// is there.
func (a *Association) SetHeartbeat(remote netip.Addr, every time.Duration) error {
	p := pathParams{path: netip.AddrPortFrom(remote.Unmap(), a.remote.Port), heartbeat: every, flags: heartbeatOn}
	if err := a.sock.set(optPathParams, p.bytes()); err != nil {
		return fmt.Errorf("set heartbeat of path to %s: %w", remote, err)
	}
	return nil
}

// Readdress replaces an address of this end, and tells the peer, by whichever path
// it still hears (RFC 5061, F21). It does not block, and does not wait for the
// peer.
func (a *Association) Readdress(from, to netip.Addr) error {
	if err := a.changeLocal(to, true); err != nil {
		return err
	}
	return a.changeLocal(from, false)
}

func (a *Association) changeLocal(ip netip.Addr, add bool) error {
	verb := "remove"
	if add {
		verb = "add"
	}
	b := assocValue(0)
	if _, err := a.sock.get(optAsconf, b); err != nil {
		return fmt.Errorf("%s address %s: %w", verb, ip, err)
	}
	if native.Uint32(b[4:]) == 0 {
		return fmt.Errorf("%s address %s: the peer takes no changes of addresses: dial again", verb, ip)
	}
	if err := a.sock.bind([]netip.Addr{ip}, a.from.Port, add); err != nil {
		return fmt.Errorf("%s address %s: %w", verb, ip, err)
	}
	return nil
}

// Close implements net.Conn. What was written is still delivered, as long as the
// peer acknowledges some of it.
func (a *Association) Close() error {
	if !a.tuning.kernel {
		// A path that is gone must not be tried for long on behalf of nobody.
		_ = a.sock.set(optAssocInfo, assocParams(lostClosing))
	}
	err := a.sock.close()
	if errors.Is(err, net.ErrClosed) {
		return a.failed("close", err)
	}
	return err
}

// LocalAddr implements net.Conn.
func (a *Association) LocalAddr() net.Addr { return a.from }

// RemoteAddr implements net.Conn.
func (a *Association) RemoteAddr() net.Addr { return a.remote }

// SetDeadline implements net.Conn.
func (a *Association) SetDeadline(t time.Time) error { return a.sock.file.SetDeadline(t) }

// SetReadDeadline implements net.Conn.
func (a *Association) SetReadDeadline(t time.Time) error { return a.sock.file.SetReadDeadline(t) }

// SetWriteDeadline implements net.Conn.
func (a *Association) SetWriteDeadline(t time.Time) error { return a.sock.file.SetWriteDeadline(t) }

// failed names the operation, in the type that crypto/tls asks whether an error
// is only a deadline.
func (a *Association) failed(op string, err error) error {
	return &net.OpError{Op: op, Net: "sctp", Source: a.from, Addr: a.remote, Err: err}
}
