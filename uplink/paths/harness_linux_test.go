package paths

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const (
	whoPort    = 7 // TCP; says which router it is
	namespaced = "SLUICE_TEST_NAMESPACE"
)

// isolated runs the calling test once more, in a process with a network namespace
// of its own, and is true there. Where it is false the test is over.
func isolated(t *testing.T) bool {
	t.Helper()
	if os.Getenv(namespaced) == t.Name() {
		if err := loopbackUp(); err != nil {
			t.Fatal(err)
		}
		return true
	}
	if os.Getuid() != 0 {
		if os.Getenv("SLUICE_GUEST") != "" {
			t.Fatal("not root in the lab's guest")
		}
		t.Skip("needs root, for network namespaces: runs in make test as root, and in the lab's guest")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	runtime.LockOSThread() // the child is killed when this thread ends
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=100s")
	cmd.Env = append(os.Environ(), namespaced+"="+t.Name(), "GORACE=atexit_sleep_ms=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("in its namespace: %v\n%s", err, out)
	} else {
		t.Logf("in its namespace:\n%s", out)
	}
	return false
}

func loopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

// uplink is a veth pair: one end is the gateway's interface, the other is in a
// router's namespace.
type uplink struct {
	t        *testing.T
	name     string
	ns       netns.NsHandle
	router   *netlink.Handle // in the router's namespace
	gw4, gw6 netip.Addr      // the router's, as the gateway sees it
	metric   int
}

// newUplink makes an interface with the addresses x.2 of the networks (IPv6
// invalid is none), a router at x.1, and default routes with the metric.
func newUplink(t *testing.T, name string, net4, net6 netip.Prefix, metric int) *uplink {
	t.Helper()
	u := &uplink{t: t, name: name, metric: metric, gw4: net4.Addr().Next()}
	if net6.IsValid() {
		u.gw6 = net6.Addr().Next()
	}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // for ever: the thread ends with the goroutine
		var err error
		u.ns, err = netns.New()
		if err == nil {
			err = loopbackUp()
		}
		made <- err
	}()
	u.must(<-made)
	t.Cleanup(func() { u.ns.Close() })
	var err error
	u.router, err = netlink.NewHandleAt(u.ns, unix.NETLINK_ROUTE)
	u.must(err)
	t.Cleanup(u.router.Close)
	lo, err := u.router.LinkByName("lo")
	u.must(err)
	u.must(u.router.AddrAdd(lo, address4(netip.PrefixFrom(world4, 32))))
	u.must(u.router.AddrAdd(lo, address4(netip.PrefixFrom(world6, 128))))
	u.create()
	u.address(net4, net6)
	u.defaults()
	u.serve()
	return u
}

func (u *uplink) must(err error) {
	u.t.Helper()
	if err != nil {
		u.t.Fatal(u.name, ": ", err)
	}
}

func address4(p netip.Prefix) *netlink.Addr {
	return &netlink.Addr{IPNet: ipNet(p), Flags: unix.IFA_F_NODAD}
}

// create makes the interface, which must not exist, up and without addresses.
func (u *uplink) create() {
	u.t.Helper()
	u.must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: u.name}, PeerName: "lan", PeerNamespace: netlink.NsFd(int(u.ns))}))
	u.must(netlink.LinkSetUp(u.link()))
	u.carrier(true)
}

func (u *uplink) link() netlink.Link {
	u.t.Helper()
	l, err := netlink.LinkByName(u.name)
	u.must(err)
	return l
}

func (u *uplink) lan() netlink.Link {
	u.t.Helper()
	l, err := u.router.LinkByName("lan")
	u.must(err)
	return l
}

// carrier switches the router's end.
func (u *uplink) carrier(on bool) {
	u.t.Helper()
	if on {
		u.must(u.router.LinkSetUp(u.lan()))
	} else {
		u.must(u.router.LinkSetDown(u.lan()))
	}
}

// address gives both ends addresses.
func (u *uplink) address(net4, net6 netip.Prefix) {
	u.t.Helper()
	for _, n := range []netip.Prefix{net4, net6} {
		if n.IsValid() {
			router, gateway := n.Addr().Next(), n.Addr().Next().Next()
			u.must(u.router.AddrReplace(u.lan(), address4(netip.PrefixFrom(router, n.Bits()))))
			u.must(netlink.AddrReplace(u.link(), address4(netip.PrefixFrom(gateway, n.Bits()))))
		}
	}
}

// defaults sets the default routes in the main table, as a DHCP client does.
func (u *uplink) defaults() {
	u.t.Helper()
	for _, gw := range []netip.Addr{u.gw4, u.gw6} {
		if gw.IsValid() {
			u.must(netlink.RouteReplace(&netlink.Route{Dst: anywhere(gw.Is6()), Gw: ip(gw), LinkIndex: u.link().Attrs().Index, Priority: u.metric}))
		}
	}
}

func anywhere(ipv6 bool) *net.IPNet {
	if ipv6 {
		return ipNet(netip.PrefixFrom(netip.IPv6Unspecified(), 0))
	}
	return ipNet(netip.PrefixFrom(netip.IPv4Unspecified(), 0))
}

// dead has the router swallow what goes beyond it, while the link is as before.
func (u *uplink) dead() {
	u.t.Helper()
	lo, err := u.router.LinkByName("lo")
	u.must(err)
	u.must(u.router.AddrDel(lo, address4(netip.PrefixFrom(world4, 32))))
	u.must(u.router.AddrDel(lo, address4(netip.PrefixFrom(world6, 128))))
}

// in runs f in the router's namespace; sockets made by it stay there.
func (u *uplink) in(f func() error) {
	u.t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for ever, as above
		err := netns.Set(u.ns)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	u.must(<-done)
}

// serve answers who it is, and as a name server the same for every name.
func (u *uplink) serve() {
	u.t.Helper()
	u.in(func() error {
		tcp, err := net.Listen("tcp", fmt.Sprintf(":%d", whoPort))
		if err != nil {
			return err
		}
		dns, err := net.ListenPacket("udp", netip.AddrPortFrom(world4, nameserverPort).String())
		if err != nil {
			return err
		}
		u.t.Cleanup(func() { tcp.Close(); dns.Close() })
		go answer(dns, func(q []byte) []byte { return dnsAnswer(q, u.gw4) })
		go func() {
			for {
				c, err := tcp.Accept()
				if err != nil {
					return
				}
				fmt.Fprint(c, u.name)
				c.Close()
			}
		}()
		return nil
	})
}

// answer answers until the socket is closed.
func answer(conn net.PacketConn, say func([]byte) []byte) {
	b := make([]byte, 1500)
	for {
		n, from, err := conn.ReadFrom(b)
		if err != nil {
			return
		}
		if a := say(b[:n]); a != nil {
			conn.WriteTo(a, from)
		}
	}
}

// who says by which router a socket of the dialer reaches to, or the error.
func who(dialer net.Dialer, to netip.Addr) string {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	conn, err := dialer.DialContext(ctx, "tcp", netip.AddrPortFrom(to, whoPort).String())
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(2 * time.Second))
	b := make([]byte, 64)
	n, err := conn.Read(b)
	if err != nil {
		return err.Error()
	}
	return string(b[:n])
}

// running is a Monitor that runs until the test ends, or stop.
type running struct {
	*Monitor
	t    *testing.T
	log  bytes.Buffer // read after stop only
	stop func()
}

func run(t *testing.T, opt Options) *running {
	t.Helper()
	r := &running{t: t}
	opt.Logger = slog.New(slog.NewTextHandler(&r.log, nil))
	m, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	r.Monitor = m
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	stopped := false
	r.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("log:\n%s", &r.log)
		}
	}
	t.Cleanup(r.stop)
	return r
}

// await waits until the paths are as ok says, within a second as a rule; a machine
// that is busy with other things gets more.
func (r *running) await(what string, ok func([]Path) bool) []Path {
	r.t.Helper()
	began := time.Now()
	limit := time.After(patient(5 * time.Second))
	for {
		paths := r.Paths()
		if ok(paths) {
			r.t.Logf("%s after %v", what, time.Since(began).Round(time.Millisecond))
			return paths
		}
		select {
		case <-r.Changed():
		case <-limit:
			r.stop()
			r.t.Fatalf("%s: not in time, but %+v", what, paths)
		}
	}
}

// reason waits until the path's reason is as given, "" for up.
func (r *running) reason(name, reason string) Path {
	r.t.Helper()
	var found Path
	r.await(strings.TrimSpace(name+" "+reason), func(paths []Path) bool {
		for _, p := range paths {
			if p.Name == name && p.Reason == reason && p.Up == (reason == "") {
				found = p
				return true
			}
		}
		return false
	})
	return found
}

// state is all rules and routes there are, as text, without what the kernel puts
// into its table of local addresses.
func state(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		rules, err := netlink.RuleList(family)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rules {
			fmt.Fprintf(&b, "rule %d: mark %#x from %v to %v table %d protocol %d\n", r.Priority, r.Mark, r.Src, r.Dst, r.Table, r.Protocol)
		}
		routes, err := netlink.RouteListFiltered(family, &netlink.Route{}, netlink.RT_FILTER_TABLE)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range routes {
			if r.Table == unix.RT_TABLE_LOCAL {
				continue
			}
			fmt.Fprintf(&b, "route %v via %v on %d table %d metric %d protocol %d type %d\n", r.Dst, r.Gw, r.LinkIndex, r.Table, r.Priority, r.Protocol, r.Type)
		}
	}
	return b.String()
}

// kill runs the calling test again as a victim in this namespace, and kills it
// once ready.
func kill(t *testing.T, ready func() bool) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "SLUICE_TEST_VICTIM=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	for limit := time.Now().Add(patient(10 * time.Second)); !ready(); {
		if time.Now().After(limit) {
			t.Fatal("the victim has not installed anything")
		}
		<-time.After(10 * time.Millisecond)
	}
}

// quiet fails the test if links, addresses, routes or rules go on changing.
func quiet(t *testing.T) {
	t.Helper()
	w, err := newWake()
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	for limit := time.After(patient(5 * time.Second)); ; {
		select {
		case <-w.woken: // the last of the change before, or IPv6 finding its feet
		case <-time.After(10 * settle):
			return
		case <-limit:
			t.Fatalf("never settles:\n%s", state(t))
		}
	}
}
