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
	"strings"
	"time"

	"sluice/uplink/wire"
)

// devicePrefix begins the names of a gateway's devices; a number follows.
const (
	devicePrefix = "sluice"
	devicesMost  = 16 // numbers tried, of which others may have some
)

// Options configures a Client. All fields are required.
type Options struct {
	DataDir string // keys and the lease are kept in its folder "tunnel"
	Gateway string // as in the certificate
	// Ask dials the collector over whichever path works and calls the function
	// Ask. It must return when ctx ends.
	Ask    func(ctx context.Context, req wire.TunnelRequest) (wire.TunnelReply, error)
	Logger *slog.Logger
}

// Client keeps a gateway's tunnels. Its methods may be called by several
// goroutines, and are done one after the other.
type Client struct {
	opt     Options
	dir     string
	backend backend
	// turn holds its one value while no method is at work. A method keeps the turn
	// while it waits for the kernel and the collector, which one would not do with
	// a mutex.
	turn chan struct{}

	// What follows belongs to the method whose turn it is.
	lease    *lease // nil if there is none
	tunnels  map[string]*clientTunnel
	uplinks  []Uplink // as last applied
	endpoint netip.Addr
	askFrom  time.Time // a collector that refused is not asked again before
	closed   bool
}

// clientTunnel is a tunnel that is up.
type clientTunnel struct {
	spec   spec
	name   string // of the device
	device device
	limit  int  // MTU that SetMTU set, 0 if it did not
	stale  bool // the collector has forgotten the session's keys
}

// spec is all that a device was made from.
type spec struct {
	private  key
	public   key // the collector's
	local    netip.Prefix
	remote   netip.Addr
	mark     uint32
	endpoint netip.AddrPort
	link     int // the uplink's MTU
}

// New removes what an earlier process of this gateway left, and returns a Client
// without tunnels. It fails where this process may not make devices.
func New(opt Options) (*Client, error) {
	b, err := openBackend(opt.Logger)
	if err != nil {
		return nil, err
	}
	c, err := newClient(opt, b)
	if err != nil {
		return nil, errors.Join(err, b.close())
	}
	return c, nil
}

func newClient(opt Options, b backend) (*Client, error) {
	c := &Client{opt: opt, dir: filepath.Join(opt.DataDir, "tunnel"), backend: b, turn: make(chan struct{}, 1), tunnels: make(map[string]*clientTunnel)}
	c.turn <- struct{}{}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return nil, err
	}
	if err := c.sweep(); err != nil {
		return nil, fmt.Errorf("remove old tunnels: %w", err)
	}
	l, err := readLease(c.leasePath())
	switch {
	case err == nil:
		c.lease = l
	case !errors.Is(err, os.ErrNotExist):
		opt.Logger.Warn("lease of tunnels not readable, asking for another", "file", c.leasePath(), "error", err)
	}
	return c, nil
}

func (c *Client) leasePath() string { return filepath.Join(c.dir, "lease.json") }

// sweep removes devices that hold one of our keys, or none yet.
func (c *Client) sweep() error {
	files, err := filepath.Glob(filepath.Join(c.dir, "*.key"))
	if err != nil {
		return err
	}
	ours := []key{{}}
	for _, f := range files {
		private, err := openKey(f)
		if err != nil {
			return err
		}
		public, err := private.public()
		if err != nil {
			return fmt.Errorf("key %s: %w", f, err)
		}
		ours = append(ours, public)
	}
	return c.backend.sweep(func(name string, public key) bool {
		digits, found := strings.CutPrefix(name, devicePrefix)
		return found && strings.Trim(digits, "0123456789") == "" && slices.Contains(ours, public)
	})
}

// take waits for the turn.
func (c *Client) take(ctx context.Context) error {
	select {
	case <-c.turn:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if c.closed {
		c.give()
		return ErrClosed
	}
	return nil
}

func (c *Client) give() { c.turn <- struct{}{} }

// Apply brings up a tunnel to the collector, at endpoint or at the uplink's own, for
// each of the uplinks, at most four, and removes those of others. What is as it should be is left
// alone, so that Apply may be called at every change of the paths. It asks the
// collector only for what the kept lease does not have.
//
// The tunnels that are up are returned, in the order of the uplinks, also beside
// an error, which is about the others.
func (c *Client) Apply(ctx context.Context, uplinks []Uplink, endpoint netip.Addr) ([]Tunnel, error) {
	if err := c.take(ctx); err != nil {
		return nil, err
	}
	defer c.give()
	if err := checkUplinks(uplinks, endpoint); err != nil {
		return nil, err
	}
	var errs []error
	c.uplinks, c.endpoint = nil, endpoint.Unmap()
	for _, u := range uplinks {
		if u.MTU != 0 && u.MTU-Overhead < minMTU {
			errs = append(errs, fmt.Errorf("uplink %s: its MTU of %d bytes leaves a tunnel less than %d", u.Name, u.MTU, minMTU))
			continue
		}
		c.uplinks = append(c.uplinks, u)
	}
	up, err := c.apply(ctx)
	return up, errors.Join(append(errs, err)...)
}

// Renew asks the collector for the lease again, whatever is kept, applies what it
// answers, and has all tunnels shake hands anew. It is for tunnels that stay
// silent over paths that work: the collector has lost its keys, or is another one,
// or has seen this gateway's clock ahead of what it is now and takes the handshake
// for an old one, until it is told. It costs one TLS handshake.
func (c *Client) Renew(ctx context.Context) ([]Tunnel, error) {
	if err := c.take(ctx); err != nil {
		return nil, err
	}
	defer c.give()
	if len(c.uplinks) == 0 {
		return nil, nil
	}
	keys, err := c.openKeys()
	if err != nil {
		return nil, err
	}
	errs := append([]error{c.ask(ctx, keys)}, c.raiseAll(keys)...)
	return c.up(), errors.Join(errs...)
}

func checkUplinks(uplinks []Uplink, endpoint netip.Addr) error {
	if !endpoint.IsValid() {
		return errors.New("apply tunnels: the collector's address is missing")
	}
	if len(uplinks) > wire.MaxTunnels {
		return fmt.Errorf("apply tunnels: %d uplinks, at most %d can have one", len(uplinks), wire.MaxTunnels)
	}
	for i, u := range uplinks {
		if err := checkName(u.Name); err != nil {
			return err
		}
		if slices.ContainsFunc(uplinks[:i], func(o Uplink) bool { return o.Name == u.Name }) {
			return fmt.Errorf("uplink %s is there twice", u.Name)
		}
	}
	return nil
}

func (c *Client) apply(ctx context.Context) ([]Tunnel, error) {
	var errs []error
	for name := range c.tunnels {
		if !slices.ContainsFunc(c.uplinks, func(u Uplink) bool { return u.Name == name }) {
			errs = append(errs, c.drop(name))
		}
	}
	keys, err := c.openKeys()
	if err != nil {
		return c.up(), errors.Join(append(errs, err)...)
	}
	for _, u := range c.uplinks {
		public, err := keys[u.Name].public()
		if err != nil {
			return c.up(), errors.Join(append(errs, err)...)
		}
		if !c.lease.holds(u.Name, public) {
			errs = append(errs, c.askAgain(ctx, keys))
			break
		}
	}
	errs = append(errs, c.raiseAll(keys)...)
	return c.up(), errors.Join(errs...)
}

// raiseAll raises the tunnels that the lease has: one that the collector would
// not extend is good for those.
func (c *Client) raiseAll(keys map[string]key) (errs []error) {
	for _, u := range c.uplinks {
		public, err := keys[u.Name].public()
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("key of uplink %s: %w", u.Name, err))
		case c.lease.holds(u.Name, public):
			errs = append(errs, c.raise(u, keys[u.Name]))
		}
	}
	return errs
}

// openKeys reads or makes the private keys of the uplinks.
func (c *Client) openKeys() (map[string]key, error) {
	keys := make(map[string]key)
	for _, u := range c.uplinks {
		k, err := openKey(filepath.Join(c.dir, u.Name+".key"))
		if err != nil {
			return nil, fmt.Errorf("key of uplink %s: %w", u.Name, err)
		}
		keys[u.Name] = k
	}
	return keys, nil
}

// askAgain asks unless the collector has refused lately.
func (c *Client) askAgain(ctx context.Context, keys map[string]key) error {
	if wait := time.Until(c.askFrom); wait > 0 {
		return fmt.Errorf("ask for tunnels: the collector has refused, asking again in %v", wait.Round(time.Second))
	}
	return c.ask(ctx, keys)
}

// ask asks for the uplinks as applied and, while there is room, for those that
// the lease has besides, so that it need not ask when they come back.
func (c *Client) ask(ctx context.Context, keys map[string]key) error {
	req := wire.TunnelRequest{Gateway: c.opt.Gateway}
	for _, u := range c.uplinks {
		public, err := keys[u.Name].public()
		if err != nil {
			return fmt.Errorf("key of uplink %s: %w", u.Name, err)
		}
		req.Uplinks = append(req.Uplinks, wire.TunnelUplink{Name: u.Name, Key: wire.TunnelKey(public)})
	}
	if c.lease != nil {
		for name, h := range c.lease.Uplinks {
			if _, asked := keys[name]; !asked && len(req.Uplinks) < wire.MaxTunnels {
				req.Uplinks = append(req.Uplinks, wire.TunnelUplink{Name: name, Key: wire.TunnelKey(h.Key)})
			}
		}
	}
	reply, err := c.opt.Ask(ctx, req)
	var refused *RefusedError
	if errors.As(err, &refused) {
		c.askFrom = time.Now().Add(refused.RetryAfter)
	}
	if err == nil {
		err = checkReply(req, reply)
	}
	if err != nil {
		return err
	}
	c.askFrom = time.Time{}
	c.lease = newLease(req, reply)
	for _, t := range c.tunnels {
		t.stale = true
	}
	if err := c.lease.write(c.leasePath()); err != nil {
		return fmt.Errorf("keep the lease of tunnels: %w", err)
	}
	return nil
}

// raise makes the uplink's tunnel what it should be.
func (c *Client) raise(u Uplink, private key) error {
	h := c.lease.Uplinks[u.Name]
	endpoint := c.endpoint
	if u.Endpoint.IsValid() {
		endpoint = u.Endpoint.Unmap()
	}
	want := spec{
		private: private, public: c.lease.Collector, local: h.Local, remote: h.Remote,
		mark: u.Mark, endpoint: netip.AddrPortFrom(endpoint, c.lease.Port), link: u.MTU,
	}
	if endpoint == h.Remote || endpoint == h.Local.Addr() {
		return fmt.Errorf("tunnel of %s: the collector's inner and outer address are both %s: it needs another tunnel network", u.Name, endpoint)
	}
	t := c.tunnels[u.Name]
	if t != nil {
		if _, err := t.device.peers(); errors.Is(err, errGone) {
			c.opt.Logger.Warn("tunnel was removed by somebody", "path", u.Name, "device", t.name)
		} else if t.changeable(want) {
			return t.change(want)
		}
	}
	if err := c.drop(u.Name); err != nil {
		return err
	}
	t, err := c.create(want, u.Name)
	if err != nil {
		return fmt.Errorf("tunnel of %s: %w", u.Name, err)
	}
	c.tunnels[u.Name] = t
	c.opt.Logger.Info("tunnel made", "path", u.Name, "device", t.name, "local", h.Local.Addr(), "remote", h.Remote, "endpoint", want.endpoint, "mtu", t.mtu())
	return nil
}

// changeable tells whether at most the endpoint and the link's MTU are different.
func (t *clientTunnel) changeable(want spec) bool {
	same := t.spec
	same.endpoint, same.link = want.endpoint, want.link
	return same == want
}

func (t *clientTunnel) change(want spec) error {
	if t.stale || t.spec.endpoint != want.endpoint {
		var gone []key
		if t.stale {
			gone = append(gone, want.public)
		}
		if err := t.device.setPeers([]peer{want.peer()}, gone); err != nil {
			return fmt.Errorf("lead device %s to %s: %w", t.name, want.endpoint, err)
		}
		t.spec.endpoint, t.stale = want.endpoint, false
	}
	if t.spec.link != want.link {
		t.spec.link, t.limit = want.link, 0
		if err := t.device.setMTU(t.mtu()); err != nil {
			return fmt.Errorf("set mtu of device %s: %w", t.name, err)
		}
	}
	return nil
}

func (s spec) peer() peer {
	return peer{public: s.public, allowed: netip.PrefixFrom(s.remote, s.remote.BitLen()), endpoint: s.endpoint, keepalive: keepalive}
}

func (t *clientTunnel) mtu() int {
	mtu := MaxMTU
	if t.spec.link != 0 {
		mtu = min(mtu, t.spec.link-Overhead)
	}
	if t.limit != 0 {
		mtu = min(mtu, t.limit)
	}
	return mtu
}

// create makes a device by the first name that nobody has.
func (c *Client) create(want spec, path string) (*clientTunnel, error) {
	t := &clientTunnel{spec: want}
	s := settings{
		private: want.private, mark: want.mark, mtu: t.mtu(), alias: "tunnel of " + path,
		addresses: []netip.Prefix{want.local}, hosts: []netip.Addr{want.remote},
	}
	for n := range devicesMost {
		t.name = fmt.Sprint(devicePrefix, n)
		if c.uses(t.name) {
			continue
		}
		d, err := c.backend.create(t.name, s, []peer{want.peer()})
		if errors.Is(err, errTaken) {
			continue
		}
		t.device = d
		return t, err
	}
	return nil, fmt.Errorf("make a device: all names from %s0 to %s%d are taken: remove those of other programs", devicePrefix, devicePrefix, devicesMost-1)
}

func (c *Client) uses(device string) bool {
	for _, t := range c.tunnels {
		if t.name == device {
			return true
		}
	}
	return false
}

// drop removes an uplink's tunnel, if there is one.
func (c *Client) drop(name string) error {
	t := c.tunnels[name]
	if t == nil {
		return nil
	}
	delete(c.tunnels, name)
	if err := t.device.close(); err != nil {
		return fmt.Errorf("remove tunnel of %s: %w", name, err)
	}
	c.opt.Logger.Info("tunnel removed", "path", name, "device", t.name)
	return nil
}

// up lists the tunnels in the order of the uplinks.
func (c *Client) up() []Tunnel {
	var up []Tunnel
	for _, u := range c.uplinks {
		if t := c.tunnels[u.Name]; t != nil {
			up = append(up, Tunnel{Path: u.Name, Device: t.name, Local: t.spec.local.Addr(), Remote: t.spec.remote, MTU: t.mtu()})
		}
	}
	return up
}

// SetMTU makes a tunnel carry inner packets of at most mtu bytes, from 576, until
// the MTU of its link changes or the tunnel is removed: for paths that swallow
// large packets (F19). It never makes it more than the link allows.
func (c *Client) SetMTU(path string, mtu int) error {
	if mtu < minMTU || mtu > MaxMTU {
		return fmt.Errorf("set mtu of the tunnel of %s: %d is not within %d to %d", path, mtu, minMTU, MaxMTU)
	}
	if err := c.take(context.Background()); err != nil {
		return err
	}
	defer c.give()
	t := c.tunnels[path]
	if t == nil {
		return fmt.Errorf("set mtu: %s has no tunnel", path)
	}
	t.limit = mtu
	if err := t.device.setMTU(t.mtu()); err != nil {
		return fmt.Errorf("set mtu of device %s: %w", t.name, err)
	}
	return nil
}

// State measures the tunnels that are up. It waits for a call of Apply or Renew
// that is under way, at most until ctx ends.
func (c *Client) State(ctx context.Context) ([]State, error) {
	if err := c.take(ctx); err != nil {
		return nil, err
	}
	defer c.give()
	var all []State
	var errs []error
	for _, up := range c.up() {
		s := State{Tunnel: up}
		peers, err := c.tunnels[up.Path].device.peers()
		if err != nil {
			errs = append(errs, fmt.Errorf("measure device %s: %w", up.Device, err))
		}
		for _, p := range peers {
			s.Handshake, s.Sent, s.Received = p.handshake, p.sent, p.received
		}
		all = append(all, s)
	}
	return all, errors.Join(errs...)
}

// Close removes the devices. The keys and the lease stay.
func (c *Client) Close() error {
	<-c.turn
	defer c.give()
	if c.closed {
		return nil
	}
	c.closed = true
	var errs []error
	for name := range c.tunnels {
		errs = append(errs, c.drop(name))
	}
	return errors.Join(append(errs, c.backend.close())...)
}
