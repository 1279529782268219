package main

import (
	"context"
	"crypto/tls"
	"math/rand/v2"
	"path"
	"time"

	"sluice/config"
	"sluice/pathsel"
	"sluice/uplink"
	"sluice/uplink/paths"
	"sluice/uplink/sctp"
	"sluice/uplink/steer"
	"sluice/uplink/tcp"
	"sluice/uplink/tunnel"
	"sluice/uplink/underlay"
	"sluice/uplink/wire"
)

// maxFrame is the largest frame of the uplink, in bytes. On slow links the
// uplink makes them smaller by itself.
const maxFrame = 256 << 10

func (g *gateway) startUplink(c *config.Gateway) (func(), error) {
	u := c.Uplink
	roots, err := authorities(u.CA)
	if err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(u.Cert, u.Key)
	if err != nil {
		return nil, err
	}
	secure := &tls.Config{
		RootCAs: roots, Certificates: []tls.Certificate{pair}, ServerName: u.ServerName, MinVersion: tls.VersionTLS13,
		// To resume a session costs fewer bytes.
		ClientSessionCache: tls.NewLRUClientSessionCache(len(u.Collectors) + len(u.Paths)),
	}
	options := uplink.Options{
		Gateway:    c.Gateway.ID,
		Queue:      g.store,
		Flush:      time.Duration(u.FlushInterval),
		MaxFrame:   maxFrame,
		Keepalive:  time.Duration(u.Keepalive),
		AckTimeout: time.Duration(u.AckTimeout),
		Correct:    g.clock.Correct,
		Logger:     g.log,
	}
	refused := ""
	if len(u.Paths) > 0 {
		stop, err := g.startPaths(c, secure, options)
		if err == nil {
			return stop, nil
		}
		// A gateway that delivers by one way is better than one that does not.
		refused = "the paths cannot be used: " + err.Error()
		g.log.Error("readings go over TCP wherever the route leads", "reason", refused)
	}
	var dialers []uplink.Dialer
	for _, address := range u.Collectors {
		dialers = append(dialers, uplink.Dialer{Name: address, Kind: "tcp", Dial: func(ctx context.Context) (uplink.Carrier, error) {
			return tcp.Dial(ctx, tcp.Options{Address: address, TLS: secure})
		}})
	}
	options.Slots = []uplink.Slot{{Name: "tcp", Dialers: dialers}}
	sender := uplink.New(options)
	g.setUplink(sender, nil)
	g.pathsRefused.Store(&refused)
	stop := background(g.log, "uplink", sender.Run)
	return func() {
		stop()
		g.setUplink(nil, nil)
	}, nil
}

// startPaths is startUplink for a gateway that knows its paths: the monitor finds
// them, the underlay prepares them, the steering chooses, the sender sends.
func (g *gateway) startPaths(c *config.Gateway, secure *tls.Config, options uplink.Options) (func(), error) {
	u := c.Uplink
	var patterns []paths.Pattern
	for _, p := range u.Paths {
		patterns = append(patterns, paths.Pattern{Interface: p.Interface, Metered: p.Metered})
	}
	monitor, err := paths.New(paths.Options{Patterns: patterns, Logger: g.log})
	if err != nil {
		return nil, err
	}
	to := func(path string) []string { return collectors(&u, path) }
	way := underlay.Options{Monitor: monitor, TLS: secure, Logger: g.log, Collectors: to}
	steering := steer.Options{Random: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), Profile: pathsel.Default(), Collectors: to, Logger: g.log}
	if u.Profile == "paper" {
		steering.Profile = pathsel.Paper()
	}
	supported := sctp.Supported()
	switch {
	case u.Carrier == "tcp":
		steering.NoSCTP = `the configuration says carrier = "tcp"`
	case supported != nil:
		steering.NoSCTP = supported.Error()
		g.log.Info("readings go over TCP only", "reason", supported)
	}
	var below *underlay.Underlay
	if steering.NoSCTP == "" && u.Underlay == underlay.Tunnel {
		way.Tunnels, err = tunnel.New(tunnel.Options{DataDir: c.Gateway.DataDir, Gateway: c.Gateway.ID, Logger: g.log,
			Ask: func(ctx context.Context, req wire.TunnelRequest) (wire.TunnelReply, error) {
				return below.Ask(ctx, req)
			}})
		if err != nil {
			way.Tunnels, steering.NoSCTP = nil, "no tunnels for SCTP: "+err.Error()
		}
	}
	below = underlay.New(way)
	if steering.NoSCTP == "" {
		steering.DialSCTP = below.DialSCTP
	}
	sender := uplink.New(options)
	steering.Paths, steering.Changed, steering.Underlay = below.Paths, below.Changed(), below.Kind()
	steering.Sender = sender
	if u.Carrier != "sctp" || steering.DialSCTP == nil {
		steering.DialTCP = below.DialTCP
	}
	st := steer.New(steering)
	g.setUplink(sender, st)

	// They stop in the order of their dependence: what is in flight still goes out.
	var stops []func()
	for _, part := range []struct {
		name string
		run  func(context.Context) error
	}{{"paths", monitor.Run}, {"underlay", below.Run}, {"steering", st.Run}, {"uplink", sender.Run}} {
		stops = append(stops, background(g.log, part.name, part.run))
	}
	return func() {
		for i := len(stops) - 1; i >= 0; i-- {
			stops[i]()
		}
		if way.Tunnels != nil {
			if err := way.Tunnels.Close(); err != nil {
				g.log.Warn("close tunnels", "error", err)
			}
		}
		g.setUplink(nil, nil)
	}, nil
}

// collectors are the collector's addresses by a path, in order of preference.
func collectors(u *config.Uplink, name string) []string {
	for _, p := range u.Paths {
		if ok, err := path.Match(p.Interface, name); ok && err == nil {
			if p.Collector != "" {
				return []string{p.Collector}
			}
			break
		}
	}
	return u.Collectors
}

func (g *gateway) setUplink(sender *uplink.Sender, st *steer.Steer) {
	g.sender.Store(sender)
	g.steer.Store(st)
	g.pathsRefused.Store(nil)
}
