package main

import (
	"errors"
	"reflect"

	"sluice/config"
)

// reload reads the configuration file again. Whatever is wrong with it, the
// gateway goes on as it was and says why.
func (g *gateway) reload() {
	now := g.config
	c, err := load(g.file)
	if err == nil {
		if faults := unchangeable(now, c); len(faults) > 0 {
			err = faults
		}
	}
	if err != nil {
		g.refuse(err)
		return
	}
	before := len(g.changes(c))
	if before == 0 && reflect.DeepEqual(now, c) {
		g.setRefused("")
		g.log.Info("configuration is the same: nothing to do", "config", g.file)
		return
	}
	if err := g.apply(c); err != nil {
		// A part may run with the old settings still, or again.
		g.refuse(errors.Join(err, g.apply(now)))
		return
	}
	g.setRefused("")
	g.log.Info("configuration applied", "config", g.file)
}

// changes are the parts that c would start, stop or restart.
func (g *gateway) changes(c *config.Gateway) []string {
	settings := map[string]string{}
	var changed []string
	for _, p := range g.parts(c) {
		settings[p.name] = p.settings
	}
	for _, r := range g.running {
		if settings[r.name] != r.settings {
			changed = append(changed, r.name)
		}
		delete(settings, r.name)
	}
	for name := range settings {
		changed = append(changed, name)
	}
	return changed
}

// unchangeable reports what only a restart can change.
func unchangeable(old, new *config.Gateway) config.Faults {
	var faults config.Faults
	for _, f := range []struct {
		field    string
		old, new any
	}{
		{"gateway.id", old.Gateway.ID, new.Gateway.ID},
		{"gateway.data_dir", old.Gateway.DataDir, new.Gateway.DataDir},
		{"store", old.Store, new.Store},
	} {
		if f.old != f.new {
			faults = append(faults, config.Fault{Field: f.field, Problem: "cannot be changed while the gateway runs",
				Remedy: "restart the gateway to apply the file"})
		}
	}
	return faults
}

// refuse notes why the file was not taken.
func (g *gateway) refuse(err error) {
	var faults config.Faults
	if !errors.As(err, &faults) {
		g.log.Error("configuration not taken: " + err.Error())
		g.setRefused(err.Error())
		return
	}
	// Each in a message of its own: equal messages would be summed up.
	for _, f := range faults {
		g.log.Error("configuration not taken: "+f.String(), "config", g.file, "line", f.Line)
	}
	g.setRefused(faults.Report(g.file))
}

func (g *gateway) setRefused(why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refused = why
}
