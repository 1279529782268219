package update

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"strings"
	"sync"
	"time"
)

const (
	lookEvery = 5 * time.Second // at the trial and at what was acknowledged
	againIn   = time.Minute     // after rauc or the reboot failed
)

// Marker tells the boot loader about the system that runs.
type Marker interface {
	MarkGood(ctx context.Context) error
	MarkBad(ctx context.Context) error
}

var _ Marker = Rauc{}

// Options configures a Watch. All fields are required.
type Options struct {
	Dir       string               // DATA_DIR/update
	Slot      string               // of the system that runs
	Boot      uint64               // tells this boot from others
	SinceBoot func() time.Duration // how long ago it was
	Acked     func() uint64        // readings that the collector has acknowledged in this boot
	// Announce stores a reading, so that there is one to be acknowledged at a
	// site where nothing is measured. It is called once if there is a trial, and may
	// wait until ctx ends.
	Announce func(ctx context.Context) error
	Marker   Marker
	Reboot   func(ctx context.Context) error
	Logger   *slog.Logger
}

// Watch is the gateway's part in updates: it confirms the system that runs, or
// gives it up.
type Watch struct {
	opt       Options
	announced bool
	confirmed bool
	next      time.Time // nothing is tried again before

	mu   sync.Mutex // guards what follows
	snap Snapshot
}

// Snapshot is what is known of updates at one instant.
type Snapshot struct {
	Trial  string    // the version that is being installed or on trial; empty if none
	Since  time.Time // of the boot, while the system that runs is on trial
	Reason string    // what is waited for, or what is wrong, in words
	Last   *Result   // nil if there was none
}

// NewWatch returns a Watch that does nothing until Run.
func NewWatch(opt Options) *Watch { return &Watch{opt: opt} }

// Run watches until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		w.look(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Snapshot returns what is known. It may be called at any time.
func (w *Watch) Snapshot() Snapshot {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.snap
}

// look asks the policy and obeys.
func (w *Watch) look(ctx context.Context) {
	now := time.Now()
	if now.Before(w.next) {
		return
	}
	dir := folder(w.opt.Dir)
	trial, err := dir.trial()
	if errors.Is(err, errDamaged) {
		w.opt.Logger.Error("the trial is forgotten", "error", err)
		trial, err = nil, dir.forget()
	}
	var d Decision
	if err == nil {
		d = Decide(State{SinceBoot: w.opt.SinceBoot(), Slot: w.opt.Slot, Boot: w.opt.Boot, Trial: trial, Acked: w.opt.Acked()})
		err = w.obey(ctx, d, trial)
	}
	last, readErr := dir.result()
	if err = errors.Join(err, readErr); err != nil && ctx.Err() == nil {
		w.opt.Logger.Error("update: "+err.Error(), "next_try", againIn)
		w.next = now.Add(againIn)
	}
	w.show(now, d, trial, last, err)
}

// obey does what the policy says.
func (w *Watch) obey(ctx context.Context, d Decision, trial *Trial) error {
	dir := folder(w.opt.Dir)
	if trial != nil && trial.From != w.opt.Slot && !w.announced {
		w.announced = true
		if err := w.announce(ctx); err != nil {
			// A store that takes nothing has a backlog: that will be acknowledged.
			w.opt.Logger.Warn("update: no reading of the gateway's own", "error", err)
		}
	}
	switch d.Action {
	case Confirm:
		if w.confirmed && trial == nil {
			return nil
		}
		if err := w.opt.Marker.MarkGood(ctx); err != nil {
			return fmt.Errorf("this system is not confirmed: %w", err)
		}
		w.confirmed = true
		if trial == nil {
			return nil
		}
		w.opt.Logger.Info("update confirmed", "version", trial.Version, "reason", d.Reason)
		return dir.end(Result{Version: trial.Version, OK: true, At: time.Now(), Reason: d.Reason})
	case Over:
		w.opt.Logger.Error("update failed: the system before it runs", "version", trial.Version, "reason", d.Reason)
		return dir.end(Result{Version: trial.Version, At: time.Now(), Reason: d.Reason})
	case GiveUp:
		return w.giveUp(ctx, *trial, d.Reason)
	}
	return nil
}

func (w *Watch) announce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	return w.opt.Announce(ctx)
}

// giveUp goes back to the other system. Whatever fails, the reboot is tried: the
// boot loader starts a system on trial only once.
func (w *Watch) giveUp(ctx context.Context, trial Trial, reason string) error {
	w.opt.Logger.Error("update given up: the system before it starts again", "version", trial.Version, "reason", reason)
	trial.Failed = reason
	err := errors.Join(folder(w.opt.Dir).begin(trial), w.opt.Marker.MarkBad(ctx), w.opt.Reboot(ctx))
	w.next = time.Now().Add(againIn) // it ends this process; if not, once more
	return err
}

// show makes the snapshot.
func (w *Watch) show(now time.Time, d Decision, trial *Trial, last *Result, err error) {
	s := Snapshot{Last: last}
	// What was confirmed or is over is the last result by now.
	if trial != nil && (err != nil || d.Action == Wait || d.Action == GiveUp) {
		s.Trial, s.Reason = trial.Version, d.Reason
		if trial.From != w.opt.Slot {
			s.Since = now.Add(-w.opt.SinceBoot())
		}
	}
	if err != nil {
		s.Reason = err.Error()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.snap = s
}

// Reboot ends everything in order and starts the machine anew.
func Reboot(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "reboot").CombinedOutput(); err != nil {
		return fmt.Errorf("reboot: %w %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
