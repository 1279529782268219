package tunnel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"sluice/atomicfile"
	"sluice/uplink/wire"
)

// serverDevice is the name of the collector's device.
const serverDevice = "sluice-wg"

// batchMost bounds the requests that are made durable as one.
const batchMost = 256

// ServerOptions configures a Server. All fields are required.
type ServerOptions struct {
	Dir     string       // tunnel.json and tunnel.key are kept here
	Network netip.Prefix // of the inner addresses, IPv4, 8 to 28 bits
	Port    int          // UDP
	Logger  *slog.Logger
}

// Server is the collector's end of all gateways' tunnels.
type Server struct {
	opt     ServerOptions
	plan    plan
	public  key
	backend backend
	device  device
	calls   chan leaseCall
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	registry *registry // owned by run
}

// leaseCall is a Lease that waits for run.
type leaseCall struct {
	gateway string
	request wire.TunnelRequest
	answer  chan<- leaseAnswer
}

type leaseAnswer struct {
	reply wire.TunnelReply
	err   error
}

// Listen makes the device and lets in the gateways that have a lease. It fails
// where this process may not make devices.
func Listen(opt ServerOptions) (*Server, error) {
	b, err := openBackend(opt.Logger)
	if err != nil {
		return nil, err
	}
	s, err := newServer(opt, b)
	if err != nil {
		return nil, errors.Join(err, b.close())
	}
	return s, nil
}

func newServer(opt ServerOptions, b backend) (*Server, error) {
	p, err := newPlan(opt.Network)
	if err != nil {
		return nil, err
	}
	if opt.Port < 1 || opt.Port > 0xffff {
		return nil, fmt.Errorf("tunnel port %d: use 1 to 65535, such as %d", opt.Port, DefaultPort)
	}
	if err := os.MkdirAll(opt.Dir, 0o750); err != nil {
		return nil, err
	}
	r, err := readRegistry(filepath.Join(opt.Dir, "tunnel.json"), p)
	if err != nil {
		return nil, err
	}
	private, err := openKey(filepath.Join(opt.Dir, "tunnel.key"))
	if err != nil {
		return nil, err
	}
	s := &Server{opt: opt, plan: p, backend: b, registry: r, calls: make(chan leaseCall)}
	if s.public, err = private.public(); err != nil {
		return nil, fmt.Errorf("key %s: %w", filepath.Join(opt.Dir, "tunnel.key"), err)
	}
	if err := s.raise(private); err != nil {
		return nil, err
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.wg.Go(s.run)
	return s, nil
}

// raise makes the device, or takes over that of an earlier process.
func (s *Server) raise(private key) (err error) {
	set := settings{private: private, port: uint16(s.opt.Port), mtu: collectorMTU, alias: "tunnels of gateways", many: true}
	for u := range wire.MaxTunnels {
		set.addresses = append(set.addresses, s.plan.collector(u))
	}
	var peers []peer
	for _, m := range s.registry.gateways {
		for _, seat := range m.Uplinks {
			peers = append(peers, s.peer(m, seat))
		}
	}
	s.device, err = s.backend.create(serverDevice, set, peers)
	if errors.Is(err, errTaken) {
		return fmt.Errorf("%w: stop the other collector on this machine, or remove the device", err)
	}
	return err
}

func (s *Server) peer(m member, seat seat) peer {
	return peer{public: seat.Key, allowed: s.plan.gateway(m.Number, seat.Number)}
}

// Addresses are the collector's inner addresses, one for each uplink number.
func (s *Server) Addresses() []netip.Addr {
	var all []netip.Addr
	for u := range wire.MaxTunnels {
		all = append(all, s.plan.collector(u).Addr())
	}
	return all
}

// Lease gives a gateway, whose name its certificate has proved, the tunnels that
// it asks for. An uplink that asks again keeps its addresses, and its new key
// replaces the old one. Lease returns when what it promises is on the disk and
// the device knows the keys.
func (s *Server) Lease(gateway string, req wire.TunnelRequest) (wire.TunnelReply, error) {
	answer := make(chan leaseAnswer, 1)
	select {
	case s.calls <- leaseCall{gateway, req, answer}:
	case <-s.ctx.Done():
		return wire.TunnelReply{}, ErrClosed
	}
	a := <-answer // run answers what it has taken
	return a.reply, a.err
}

// run owns the registry. It makes durable as one what asks at the same time, as
// all gateways do that a new collector meets.
func (s *Server) run() {
	for {
		select {
		case call := <-s.calls:
			s.serve(s.gather(call))
		case <-s.ctx.Done():
			return
		}
	}
}

func (s *Server) gather(first leaseCall) []leaseCall {
	calls := []leaseCall{first}
	for len(calls) < batchMost {
		select {
		case call := <-s.calls:
			calls = append(calls, call)
		default:
			return calls
		}
	}
	return calls
}

// serve answers calls: first the disk, then the device, then the gateways.
func (s *Server) serve(calls []leaseCall) {
	next := s.registry.clone()
	answers := make([]leaseAnswer, len(calls))
	var set []peer
	var gone []key
	changed := false
	for i, call := range calls {
		seats, left, different, err := s.grant(next, call)
		if err != nil {
			answers[i].err = err
			continue
		}
		answers[i].reply = wire.TunnelReply{Key: wire.TunnelKey(s.public), Port: uint16(s.opt.Port)}
		m := next.gateways[call.gateway]
		for _, seat := range seats {
			set = append(set, s.peer(m, seat))
			// It begins anew, also if it was there: the device would refuse
			// handshakes that are older than the last one, which is what those of a
			// gateway look like whose clock was set back.
			gone = append(gone, seat.Key)
			answers[i].reply.Tunnels = append(answers[i].reply.Tunnels, wire.TunnelLease{
				Local: s.plan.gateway(m.Number, seat.Number), Remote: s.plan.collector(seat.Number).Addr()})
		}
		gone = append(gone, left...)
		changed = changed || different
	}
	// A gateway may have asked twice, and its first key be gone already.
	set = slices.DeleteFunc(set, func(p peer) bool { return next.owners[p.public] == "" })
	err := s.install(next, changed, set, gone)
	for i, call := range calls {
		if err != nil && answers[i].err == nil {
			answers[i] = leaseAnswer{err: err}
		}
		call.answer <- answers[i]
	}
}

func (s *Server) grant(r *registry, call leaseCall) (seats []seat, gone []key, changed bool, err error) {
	if call.gateway == "" || call.gateway != call.request.Gateway {
		return nil, nil, false, fmt.Errorf("gateway %q asks as %q", call.gateway, call.request.Gateway)
	}
	for _, u := range call.request.Uplinks {
		if key(u.Key) == s.public {
			return nil, nil, false, fmt.Errorf("uplink %s: its key is the collector's", u.Name)
		}
	}
	if n := len(call.request.Uplinks); n < 1 || n > wire.MaxTunnels {
		return nil, nil, false, fmt.Errorf("%d uplinks, at most %d can have a tunnel", n, wire.MaxTunnels)
	}
	return r.lease(call.gateway, call.request.Uplinks, s.plan)
}

func (s *Server) install(next *registry, changed bool, set []peer, gone []key) error {
	if changed {
		text, err := next.encode()
		if err == nil {
			err = atomicfile.Write(filepath.Join(s.opt.Dir, "tunnel.json"), text)
		}
		if err != nil {
			return fmt.Errorf("keep leases: %w", err)
		}
		s.registry = next
	}
	if len(set) == 0 {
		return nil
	}
	if err := s.device.setPeers(set, gone); err != nil {
		return fmt.Errorf("let in gateways at device %s: %w", serverDevice, err)
	}
	return nil
}

// Close removes the device. The leases stay.
func (s *Server) Close() error {
	if s.ctx.Err() != nil {
		return nil
	}
	s.cancel()
	s.wg.Wait()
	return errors.Join(s.device.close(), s.backend.close())
}
