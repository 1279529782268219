package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sluice/appliance/clock"
	"sluice/config"
	"sluice/ingest"
	"sluice/ingest/broker"
	"sluice/ingest/mqtt"
	"sluice/ingest/push"
	"sluice/store"
	"sluice/uplink"
	"sluice/uplink/steer"
)

// gateway is everything that runs. What never changes is made by open; the
// parts (parts.go) are brought to a configuration by apply, at the start and at
// every reload.
type gateway struct {
	file    string
	log     *slog.Logger
	level   *slog.LevelVar
	started time.Time
	clock   *clock.Clock
	store   *store.Store
	decoder *ingest.Decoder
	running []running // in the order in which they were started
	// decoding is what the decoder's rules were made from.
	decoding string

	sender atomic.Pointer[uplink.Sender] // nil while there is none
	steer  atomic.Pointer[steer.Steer]   // nil while there is none, or paths are not known
	// pathsRefused is why configured paths are not used; nil or empty if they are.
	pathsRefused atomic.Pointer[string]
	commits      commitWatch

	// mu guards what follows, which the status reads: of the parts, what runs.
	mu      sync.Mutex
	config  *config.Gateway
	loaded  time.Time
	refused string
	broker  *broker.Broker
	clients []*mqtt.Client
	push    *push.Server
}

// open starts a gateway.
func open(c *config.Gateway, file string, log *slog.Logger, level *slog.LevelVar) (*gateway, error) {
	system, err := clock.NewSystem()
	if err != nil {
		return nil, err
	}
	var stamps []debug.BuildSetting
	if info, ok := debug.ReadBuildInfo(); ok {
		stamps = info.Settings
	}
	g := &gateway{file: file, log: log, level: level, started: time.Now(), clock: clock.New(system, clockFloor(built, stamps))}
	if err := os.MkdirAll(c.Gateway.DataDir, 0o750); err != nil {
		return nil, fmt.Errorf("data folder: %w; create it for the user of this program, or name another as gateway.data_dir", err)
	}
	if g.decoder, err = ingest.NewDecoder(ingest.DecoderOptions{}); err != nil {
		return nil, err
	}
	g.store, err = store.Open(store.Options{
		Path:           filepath.Join(c.Gateway.DataDir, "store.db"),
		Quota:          int64(c.Store.Quota),
		Policy:         store.Policy(c.Store.Policy),
		CommitInterval: time.Duration(c.Store.CommitInterval),
		CommitBytes:    int(c.Store.CommitBytes),
		Delivering: func() bool {
			s := g.sender.Load()
			return s != nil && s.Delivering()
		},
		Logger: log,
	})
	if err != nil {
		return nil, err
	}
	if err := g.apply(c); err != nil {
		return nil, errors.Join(err, g.close())
	}
	return g, nil
}

// close stops the parts in reverse, so that nothing is taken in when what was
// taken goes out and is committed.
func (g *gateway) close() error {
	for i := len(g.running) - 1; i >= 0; i-- {
		g.running[i].stop()
	}
	g.running = nil
	return g.store.Close()
}

// running is a part that runs, and with which settings.
type running struct {
	name, settings string
	stop           func() // stops it and waits for it
}

// apply makes the gateway run as c says. Parts whose settings are the same are
// not touched. If a part cannot be started the error says why, and that part
// does not run.
func (g *gateway) apply(c *config.Gateway) error {
	if now := decoderSettings(c); now != g.decoding {
		if err := g.decoder.SetRules(decoderOptions(c)); err != nil {
			return fmt.Errorf("rules: %w", err)
		}
		g.decoding = now
	}
	if err := g.level.UnmarshalText([]byte(c.Log.Level)); err != nil {
		return fmt.Errorf("log level: %w", err)
	}
	parts := g.parts(c)
	for i := len(g.running) - 1; i >= 0; i-- {
		r := g.running[i]
		if !slices.ContainsFunc(parts, func(p part) bool { return p.name == r.name && p.settings == r.settings }) {
			r.stop()
			g.running = slices.Delete(g.running, i, i+1)
			g.log.Info("stopped", "part", r.name)
		}
	}
	for _, p := range parts {
		if slices.ContainsFunc(g.running, func(r running) bool { return r.name == p.name }) {
			continue
		}
		stop, err := p.start()
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		g.running = append(g.running, running{p.name, p.settings, stop})
		g.log.Info("started", "part", p.name)
	}
	if err := g.setUsers(c); err != nil {
		return err
	}
	g.mu.Lock()
	g.config, g.loaded = c, time.Now()
	g.mu.Unlock()
	return nil
}
