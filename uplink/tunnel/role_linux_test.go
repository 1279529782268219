package tunnel

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"sluice/uplink"
	"sluice/uplink/wire"
)

// script is what a process in a role is told.
type script struct {
	Backend string // "kernel" or "process"
	Dir     string
	Leases  string // the socket at which the collector takes requests; names cross namespaces
	Gateway string
	Network netip.Prefix
}

// order is what a gateway is told while it runs, one JSON object a line.
type order struct {
	Op       string // "apply", "mtu", "state", "renew"
	Uplinks  []Uplink
	Endpoint netip.Addr
	Path     string
	MTU      int
}

// outcome is what it says about that.
type outcome struct {
	Tunnels []Tunnel
	States  []State
	Error   string
}

// act runs one end until standard input ends.
func act(role string) int {
	// What is opened here belongs to the namespace of this thread, and all of this
	// process is in one.
	var s script
	if err := json.Unmarshal([]byte(os.Getenv("SLUICE_TUNNEL_SCRIPT")), &s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	b, err := chosenBackend(s.Backend, log)
	if err == nil {
		err = map[string]func(script, backend, *slog.Logger) error{"gateway": actGateway, "collector": actCollector}[role](s, b, log)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func chosenBackend(name string, log *slog.Logger) (backend, error) {
	nl, err := openNetlink()
	if err != nil {
		return nil, err
	}
	if name == "kernel" {
		return openKernel(nl)
	}
	return &process{nl: nl, log: log}, nil
}

func actCollector(s script, b backend, log *slog.Logger) error {
	srv, err := newServer(ServerOptions{Dir: s.Dir, Network: s.Network, Port: DefaultPort, Logger: log}, b)
	if err != nil {
		return err
	}
	os.Remove(s.Leases) // of one that was killed
	ln, err := net.Listen("unix", s.Leases)
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go grantOne(srv, c)
		}
	}()
	fmt.Println("{}")
	io.Copy(io.Discard, os.Stdin)
	return errors.Join(ln.Close(), srv.Close())
}

// grantOne does what the collector does with a carrier that asks for tunnels.
func grantOne(srv *Server, c net.Conn) {
	defer c.Close()
	_, body, err := wire.NewReader(c, wire.MaxHandshake).Next()
	if err != nil {
		return
	}
	req, err := wire.DecodeTunnelRequest(body)
	if err != nil {
		return
	}
	reply, err := srv.Lease(req.Gateway, req)
	if err != nil {
		c.Write(wire.AppendReject(nil, wire.Reject{Code: wire.CodeTunnel, Reason: err.Error(), RetryAfter: 1000}))
		return
	}
	c.Write(wire.AppendTunnelReply(nil, reply))
}

func actGateway(s script, b backend, log *slog.Logger) error {
	c, err := newClient(Options{DataDir: s.Dir, Gateway: s.Gateway, Logger: log,
		Ask: func(ctx context.Context, req wire.TunnelRequest) (wire.TunnelReply, error) {
			var d net.Dialer
			plain, err := d.DialContext(ctx, "unix", s.Leases)
			if err != nil {
				return wire.TunnelReply{}, err
			}
			return Ask(ctx, plainCarrier{plain}, req)
		}}, b)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	out.Encode(outcome{})
	in := json.NewDecoder(os.Stdin)
	for {
		var o order
		if err := in.Decode(&o); err != nil {
			return c.Close()
		}
		out.Encode(obey(c, o))
	}
}

func obey(c *Client, o order) (r outcome) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var err error
	switch o.Op {
	case "apply":
		r.Tunnels, err = c.Apply(ctx, o.Uplinks, o.Endpoint)
	case "renew":
		r.Tunnels, err = c.Renew(ctx)
	case "mtu":
		err = c.SetMTU(o.Path, o.MTU)
	case "state":
		r.States, err = c.State(ctx)
	}
	if err != nil {
		r.Error = err.Error()
	}
	return r
}

// plainCarrier is a carrier without TLS.
type plainCarrier struct{ net.Conn }

func (plainCarrier) Peer() string      { return "collector" }
func (plainCarrier) Info() uplink.Info { return uplink.Info{} }
func (plainCarrier) LimitUnsent(int)   {}

// actor is a process in a role.
type actor struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// start runs a role in a namespace and waits until it is ready.
func start(t *testing.T, ns netns.NsHandle, role string, s script) *actor {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	a := &actor{t: t, cmd: exec.Command(self)}
	a.cmd.Env = append(os.Environ(), "SLUICE_TUNNEL_ROLE="+role, "SLUICE_TUNNEL_SCRIPT="+string(text))
	log, err := os.Create(t.TempDir() + "/log")
	if err != nil {
		t.Fatal(err)
	}
	a.cmd.Stderr = log
	t.Cleanup(func() {
		a.kill()
		if t.Failed() {
			log.Seek(0, io.SeekStart)
			for lines := bufio.NewScanner(log); lines.Scan(); {
				t.Logf("%s: %s", role, lines.Text())
			}
		}
		log.Close()
	})
	if a.in, err = a.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	a.out = json.NewDecoder(out)
	inside(t, ns, func() error { return a.cmd.Start() }) // a child is where its parent's thread is
	if r := a.hear(); r.Error != "" {
		t.Fatalf("start %s: %s", role, r.Error)
	}
	return a
}

func (a *actor) hear() outcome {
	a.t.Helper()
	late := time.AfterFunc(20*time.Second, func() { a.cmd.Process.Kill() })
	defer late.Stop()
	var r outcome
	if err := a.out.Decode(&r); err != nil {
		a.t.Fatalf("process says nothing: %v", err)
	}
	return r
}

// tell has a gateway do something, and fails if it could not.
func (a *actor) tell(o order) outcome {
	a.t.Helper()
	if err := json.NewEncoder(a.in).Encode(o); err != nil {
		a.t.Fatal(err)
	}
	r := a.hear()
	if r.Error != "" {
		a.t.Fatalf("%s: %s", o.Op, r.Error)
	}
	return r
}

// stop ends the process in order.
func (a *actor) stop() {
	a.t.Helper()
	a.in.Close()
	late := time.AfterFunc(20*time.Second, func() { a.cmd.Process.Kill() })
	defer late.Stop()
	if err := a.cmd.Wait(); err != nil {
		a.t.Errorf("end of process: %v", err)
	}
}

// kill ends it as a crash does.
func (a *actor) kill() {
	if a.cmd.ProcessState == nil && a.cmd.Process != nil {
		a.cmd.Process.Kill()
		a.cmd.Wait()
	}
}

// inside calls f on a thread in a namespace.
func inside(t *testing.T, ns netns.NsHandle, f func() error) {
	t.Helper()
	runtime.LockOSThread()
	own, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		t.Fatal(err)
	}
	defer own.Close()
	if err = netns.Set(ns); err == nil {
		err = f()
	}
	// A thread that cannot go back stays locked and ends with its goroutine.
	if back := netns.Set(own); back != nil {
		t.Fatal(back)
	}
	runtime.UnlockOSThread()
	if err != nil {
		t.Fatal(err)
	}
}
