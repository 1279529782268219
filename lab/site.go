package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"sluice/lab/topology"
)

// SiteOptions describe a gateway and its collector on this machine. The zero
// value of a field means the product's default.
type SiteOptions struct {
	Dir      string // where keys, configurations, data and logs are; it must exist
	Binaries string // folder of sluice and sluice-collector
	// Broker and Output are the addresses of the gateway's MQTT broker and of
	// the collector's NATS server; empty for free ports.
	Broker, Output string
	Flush, Commit  time.Duration // uplink.flush_interval, store.commit_interval
	AckTimeout     time.Duration // uplink.ack_timeout
	Quota, Policy  string        // store.quota, store.policy
	GatewayData    string        // gateway.data_dir, if it is to be on another file system
	Extra          string        // TOML added to the gateway's configuration
	Cut            bool          // put a Cut between gateway and collector
	Speed          int           // of the Cut, in bytes/s
	// Near and Far are where the gateway and the collector run; nil for here.
	Near, Far *topology.Host
	// Reach are the collector's IP addresses that the gateway dials, one a path if
	// the collector is multi-homed; empty for 127.0.0.1.
	Reach           []string
	Paths           []SitePath // uplink.path, in order of preference
	Uplink          string     // TOML added to the gateway's table uplink
	CollectorTables string     // TOML added to the collector's configuration
}

// SitePath is one of a gateway's paths.
type SitePath struct {
	Interface string // pattern
	Metered   bool
	Collector string // the collector's IP address by this path; empty for those of Reach
}

// Site is a gateway and a collector with keys and configurations of their own.
type Site struct {
	Gateway   *Process // nil until started
	Collector *Process
	Cut       *Cut // nil unless asked for

	o       SiteOptions
	push    string
	listen  string   // where the collector listens
	uplinks []string // where the gateway dials it
	metrics string   // the collector's status
}

// GatewayID is the name of a site's gateway.
const GatewayID = "lab-gateway"

// ServerName is the name in the collector's certificate.
const ServerName = "collector.lab"

// NewSite makes keys and writes configurations; nothing runs yet. A site that
// was made in the same folder before keeps its keys and data.
func NewSite(ctx context.Context, o SiteOptions) (*Site, error) {
	var err error
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return nil, fmt.Errorf("make a site in %s: %w", o.Dir, err)
	}
	listen := "0.0.0.0"
	if len(o.Reach) == 0 {
		listen, o.Reach = "127.0.0.1", []string{"127.0.0.1"}
	}
	if o.Broker == "" {
		o.Broker = FreeAddress("127.0.0.1")
	}
	if o.Output == "" {
		o.Output = FreeAddress("127.0.0.1")
	}
	if o.GatewayData == "" {
		o.GatewayData = filepath.Join(o.Dir, "gateway")
	}
	s := &Site{o: o, push: FreeAddress("127.0.0.1"), metrics: FreeAddress("127.0.0.1")}
	_, port, err := net.SplitHostPort(FreeAddress("127.0.0.1"))
	if err != nil {
		return nil, fmt.Errorf("make a site in %s: %w", o.Dir, err)
	}
	s.listen = net.JoinHostPort(listen, port)
	for _, address := range o.Reach {
		s.uplinks = append(s.uplinks, net.JoinHostPort(address, port))
	}
	if o.Cut {
		if s.Cut, err = NewCut(s.uplinks[0], o.Speed); err != nil {
			return nil, err
		}
	}
	keys := exec.CommandContext(ctx, filepath.Join(o.Binaries, "sluice-collector"),
		"keys", "--dir", filepath.Join(o.Dir, "keys"), "--gateway", GatewayID, "--host", ServerName)
	if out, err := keys.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("make keys: %w\n%s", err, out)
	}
	if err := s.writeConfigurations(); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Site) writeConfigurations() error {
	if err := os.WriteFile(s.path("gateway.toml"), []byte(s.gatewayConfig()), 0o600); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	if err := os.WriteFile(s.path("collector.toml"), []byte(s.collectorConfig()), 0o600); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	return nil
}

func (s *Site) path(name string) string { return filepath.Join(s.o.Dir, name) }

func (s *Site) gatewayConfig() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	uplinks := s.uplinks
	if s.Cut != nil {
		uplinks = []string{s.Cut.Address()}
	}
	line("version = 1")
	line("[gateway]\nid = %q\ndata_dir = %q\nstatus_socket = %q", GatewayID, s.o.GatewayData, s.path("gateway.sock"))
	line("[broker]\nlisten = [%q]", s.o.Broker)
	line("[push]\nlisten = %q", s.push)
	line("[store]")
	if s.o.Quota != "" {
		line("quota = %q", s.o.Quota)
	}
	if s.o.Policy != "" {
		line("policy = %q", s.o.Policy)
	}
	if s.o.Commit != 0 {
		line("commit_interval = %q", s.o.Commit)
	}
	line("[uplink]\ncollectors = %s\nserver_name = %q", tomlList(uplinks), ServerName)
	keys := s.GatewayKeys()
	line("ca = %q\ncert = %q\nkey = %q", keys.CA, keys.Cert, keys.Key)
	if s.o.Flush != 0 {
		line("flush_interval = %q", s.o.Flush)
	}
	if s.o.AckTimeout != 0 {
		line("ack_timeout = %q", s.o.AckTimeout)
	}
	line("%s", s.o.Uplink)
	_, port, _ := net.SplitHostPort(s.listen)
	for _, p := range s.o.Paths {
		line("[[uplink.path]]\ninterface = %q\nmetered = %t", p.Interface, p.Metered)
		if p.Collector != "" {
			line("collector = %q", net.JoinHostPort(p.Collector, port))
		}
	}
	line("%s", s.o.Extra)
	return b.String()
}

func tomlList(texts []string) string {
	quoted := make([]string, len(texts))
	for i, t := range texts {
		quoted[i] = strconv.Quote(t)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

func (s *Site) collectorConfig() string {
	keys := s.CollectorKeys()
	return fmt.Sprintf(`version = 1
[collector]
data_dir = %q
listen = [%q]
ca = %q
cert = %q
key = %q
metrics_listen = %q
[jetstream]
listen = %q
%s
`, s.path("collector"), s.listen, keys.CA, keys.Cert, keys.Key, s.metrics, s.o.Output, s.o.CollectorTables)
}

// Dial connects from where the gateway runs.
func (s *Site) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return s.o.Near.DialContext(ctx, network, address)
}

// Broker is the address of the gateway's MQTT broker, as seen by Dial.
func (s *Site) Broker() string { return s.o.Broker }

// GatewayDir is where the gateway keeps its data.
func (s *Site) GatewayDir() string { return s.o.GatewayData }

// PushURL is where sink nodes push to.
func (s *Site) PushURL() string { return "http://" + s.push }

// Uplinks are the collector's addresses that the gateway dials.
func (s *Site) Uplinks() []string { return s.uplinks }

// OutputURL is where NATS clients connect.
func (s *Site) OutputURL() string { return "nats://" + s.o.Output }

// Keys are files with the authority that both ends trust, and one end's
// certificate and private key.
type Keys struct{ CA, Cert, Key string }

// GatewayKeys are the files of the gateway's end.
func (s *Site) GatewayKeys() Keys { return s.keys(GatewayID) }

// CollectorKeys are the files of the collector's end.
func (s *Site) CollectorKeys() Keys { return s.keys("collector") }

func (s *Site) keys(name string) Keys {
	return Keys{CA: s.path("keys/ca.crt"), Cert: s.path("keys/" + name + ".crt"), Key: s.path("keys/" + name + ".key")}
}

// Oracle returns a reader of the site's output from its start.
func (s *Site) Oracle() *Oracle { return NewOracle(s.OutputURL(), s.o.Far) }

// StartCollector starts the collector and waits until gateways and consumers
// can connect.
func (s *Site) StartCollector(ctx context.Context) error {
	p, err := StartProcess(ProcessOptions{
		Path: filepath.Join(s.o.Binaries, "sluice-collector"),
		Args: []string{"run", "--config", s.path("collector.toml")},
		Dir:  s.o.Dir, Log: s.path("collector.log"), Host: s.o.Far,
	})
	if err != nil {
		return err
	}
	s.Collector = p
	return p.Await(ctx, func(ctx context.Context) error {
		// The status page is opened last; a look at it leaves no trace.
		for _, address := range []string{s.metrics, s.o.Output} {
			c, err := s.o.Far.DialContext(ctx, "tcp", address)
			if err != nil {
				return err
			}
			c.Close()
		}
		return nil
	})
}

// LaunchGateway starts the gateway and does not wait for it.
func (s *Site) LaunchGateway() error {
	p, err := StartProcess(ProcessOptions{
		Path: filepath.Join(s.o.Binaries, "sluice"),
		Args: []string{"run", "--config", s.path("gateway.toml")},
		Dir:  s.o.Dir, Log: s.path("gateway.log"), Host: s.o.Near,
	})
	if err != nil {
		return err
	}
	s.Gateway = p
	return nil
}

// StartGateway starts the gateway and waits until it takes messages in.
func (s *Site) StartGateway(ctx context.Context) error {
	if err := s.LaunchGateway(); err != nil {
		return err
	}
	return s.Gateway.Await(ctx, func(ctx context.Context) error {
		c, err := s.Dial(ctx, "tcp", s.o.Broker)
		if err != nil {
			return err
		}
		c.Close()
		_, err = s.Status(ctx)
		return err
	})
}

// Start starts the collector, then the gateway.
func (s *Site) Start(ctx context.Context) error {
	if err := s.StartCollector(ctx); err != nil {
		return err
	}
	return s.StartGateway(ctx)
}

// StopGateway ends the gateway as an orderly shutdown would. The error says when
// it did not end cleanly.
func (s *Site) StopGateway(ctx context.Context) error {
	if s.Gateway == nil {
		return nil
	}
	err := s.Gateway.Stop(ctx)
	s.Gateway = nil
	return err
}

// Stop ends the gateway, then the collector. The error says when one of them
// did not end cleanly.
func (s *Site) Stop(ctx context.Context) error {
	err := s.StopGateway(ctx)
	if s.Collector == nil {
		return err
	}
	err = errors.Join(err, s.Collector.Stop(ctx))
	s.Collector = nil
	return err
}

// Close kills what still runs and takes the link down.
func (s *Site) Close() {
	for _, p := range []*Process{s.Gateway, s.Collector} {
		if p != nil {
			p.Kill()
		}
	}
	if s.Cut != nil {
		s.Cut.Close()
	}
}
