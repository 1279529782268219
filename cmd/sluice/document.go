package main

import (
	"slices"
	"sync"
	"time"

	"sluice/admin"
	"sluice/reading"
	"sluice/store"
	"sluice/uplink"
	"sluice/uplink/steer"
)

// maxMissing is how many devices that are offline the status names.
const maxMissing = 20

// status fills in the status document.
func (g *gateway) status() admin.Status {
	now := time.Now()
	g.mu.Lock()
	c, loaded, refused := g.config, g.loaded, g.refused
	g.mu.Unlock()
	s := admin.Status{
		StatusVersion: admin.StatusVersion,
		Software:      version,
		Time:          now,
		Started:       g.started,
		UptimeSeconds: now.Sub(g.started).Seconds(),
		Clock:         admin.Clock{Quality: "synchronised"},
		Configuration: admin.Configuration{File: g.file, Loaded: loaded, Refused: refused},
	}
	if g.clock.Now().Quality == reading.Unsynchronised {
		s.Clock.Quality = "unsynchronised"
	}
	st := g.store.Stats()
	s.Store = storeStatus(&st, now)
	s.Store.CommitWaitingSeconds = g.commits.waiting(now, st.Waiting, st.Commits).Seconds()
	s.Ingest = g.ingestStatus()
	s.Devices = g.devices()
	if sender := g.sender.Load(); sender != nil {
		s.Uplink = uplinkStatus(sender.Stats())
		if st := g.steer.Load(); st != nil {
			pathStatus(&s.Uplink, st.Snapshot())
		}
		if refused := g.pathsRefused.Load(); refused != nil {
			s.Uplink.Choice = *refused
		}
	}
	var flush time.Duration
	if c != nil { // as long as the first apply goes on
		s.Gateway = c.Gateway.ID
		s.Uplink.Configured = len(c.Uplink.Collectors) > 0
		flush = time.Duration(c.Uplink.FlushInterval)
	}
	s.Health = admin.Judge(&s, flush)
	return s
}

func storeStatus(st *store.Stats, now time.Time) admin.Store {
	s := admin.Store{
		Appended:             st.Appended,
		Duplicates:           st.Duplicates,
		FileBytes:            st.FileBytes,
		UsedBytes:            st.UsedBytes,
		QuotaBytes:           st.Quota,
		Commits:              st.Commits,
		CommitSeconds:        st.CommitLast.Seconds(),
		CommitLongestSeconds: st.CommitMax.Seconds(),
		WrittenBytes:         uint64(st.Written),
		Paused:               st.Paused,
		SetAside:             st.SetAside,
		Salvaged:             st.Salvaged,
		Damaged:              st.Damaged,
		Removed:              map[string]uint64{"quota": 0, "damaged": st.Damaged},
	}
	for l, lane := range st.Lanes {
		s.Removed["quota"] += lane.Removed
		a := admin.Lane{Name: reading.Lane(l).String(), Readings: lane.Readings, Bytes: int64(lane.Bytes)}
		if lane.Oldest != 0 {
			a.OldestSeconds = max(0, now.Sub(time.Unix(0, lane.Oldest)).Seconds())
		}
		s.Lanes = append(s.Lanes, a)
	}
	return s
}

func (g *gateway) ingestStatus() admin.Ingest {
	d := g.decoder.Stats()
	in := admin.Ingest{Messages: d.Messages, Readings: d.Readings, Nulls: d.Nulls, Invalid: d.Invalid,
		RawByTopic: d.RawByTopic, RawByReason: d.RawByReason, Sources: []admin.Source{}}
	for _, n := range d.RawByReason {
		in.Raw += n
	}
	g.mu.Lock()
	b, clients, p := g.broker, slices.Clone(g.clients), g.push
	g.mu.Unlock()
	if b != nil {
		st := b.Stats()
		source := admin.Source{Name: "broker", Up: true, Clients: int(st.Clients), Messages: st.Messages, Dropped: st.Dropped,
			RefusedByReason: st.Refused, Undelivered: st.Undelivered, Unretained: st.Unretained}
		for _, n := range st.Refused {
			source.Refused += n
		}
		in.Sources = append(in.Sources, source)
	}
	for _, client := range clients {
		st := client.Stats()
		in.Sources = append(in.Sources, admin.Source{Name: "mqtt " + st.Name, Up: st.Connected, Reason: st.LastError, Since: st.Since,
			Messages: st.Messages, Refused: st.Refused, Dropped: st.Dropped})
	}
	if p != nil {
		st := p.Stats()
		in.Sources = append(in.Sources, admin.Source{Name: "push", Up: true, Messages: st.Accepted, Refused: st.Refused})
	}
	for _, source := range in.Sources {
		in.Refused += source.Refused
		in.Dropped += source.Dropped
	}
	return in
}

func (g *gateway) devices() admin.Devices {
	var ds admin.Devices
	state := g.decoder.State()
	for _, d := range state.Devices {
		if d.Online {
			ds.Online++
			continue
		}
		ds.Offline++
		if len(ds.Missing) < maxMissing {
			ds.Missing = append(ds.Missing, d.Name)
		}
	}
	for _, b := range state.Bridges {
		ds.Bridges = append(ds.Bridges, admin.Bridge{Base: b.Base, Online: b.Online, Version: b.Version, Devices: b.Devices,
			Errors: b.Errors, LastError: b.LastError})
	}
	return ds
}

func uplinkStatus(st uplink.Stats) admin.Uplink {
	return admin.Uplink{
		Up:         st.State == uplink.Delivering || st.State == uplink.Stalled,
		State:      string(st.State),
		Reason:     st.Reason,
		Since:      st.Since,
		Carrier:    st.Carrier.Kind,
		Remote:     st.Remote,
		RTTSeconds: st.RTT.Seconds(),
		LastAck:    st.LastAck,
		Delivered:  st.Readings,
		Resent:     st.Resent,
		GivenUp:    st.Oversize,
		Frames:     st.Frames,
		Retries:    st.Retries,
		SentBytes:  st.BytesOut,
		RecvBytes:  st.BytesIn,
	}
}

// pathStatus adds what is known of paths.
func pathStatus(u *admin.Uplink, snap steer.Snapshot) {
	u.Underlay, u.Choice, u.NextTry = snap.Underlay, snap.Reason, snap.NextTry
	for _, p := range snap.Paths {
		a := admin.Path{Name: p.Name, Up: p.Up, Usable: p.Usable, Primary: p.Primary, Metered: p.Metered, Reason: p.Reason, Since: p.Since,
			LossLast: p.LossLast, LossMax: p.LossMax, Score: p.Score, RTTSeconds: p.SRTT.Seconds(), SentBytes: p.SentBytes, RecvBytes: p.RecvBytes, Standing: p.Standing}
		if p.Primary && u.Up {
			u.Path = p.Name
		}
		u.Paths = append(u.Paths, a)
	}
	for _, c := range snap.Switches {
		u.Switches = append(u.Switches, admin.Switch{At: c.At, From: c.From, To: c.To, FromScore: c.FromScore, ToScore: c.ToScore, Reason: c.Reason})
	}
}

// commitWatch notices a commit that does not end. It is looked at with the
// status, which whoever watches the health asks for again and again.
type commitWatch struct {
	mu      sync.Mutex // guards what follows
	commits uint64
	since   time.Time // when something waited first and no commit ended after; zero if nothing waits
}

// waiting returns how long batches have waited without any commit ending.
func (w *commitWatch) waiting(now time.Time, batches int, commits uint64) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case batches == 0:
		w.since = time.Time{}
	case w.since.IsZero() || commits != w.commits:
		w.since = now
	}
	w.commits = commits
	if w.since.IsZero() {
		return 0
	}
	return now.Sub(w.since)
}
