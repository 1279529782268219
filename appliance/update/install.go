package update

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// InstallOptions says what to install, and where. All fields are required.
type InstallOptions struct {
	Source string // a file, or a URL that begins with http:// or https://
	Dir    string // DATA_DIR/update
	Slot   string // of the system that runs
	Boot   uint64 // tells this boot from others
	// Silent says that no collector is configured, so that the new system cannot
	// be confirmed by delivering.
	Silent bool
	Rauc   Rauc
	Say    func(line string) // is told what happens
}

// Install writes a bundle to the system that does not run. The next boot starts
// it, on trial. It returns the bundle's version.
func Install(ctx context.Context, o InstallOptions) (version string, err error) {
	unlock, err := lock(o.Dir)
	if err != nil {
		return "", err
	}
	defer unlock()
	if err := o.free(); err != nil {
		return "", err
	}
	system, err := o.Rauc.Status(ctx)
	if err != nil {
		return "", err
	}
	file := o.Source
	if isURL(file) {
		o.Say("fetching " + file)
		file = folder(o.Dir).path("bundle.raucb")
		defer os.Remove(file)
		if err := newFetcher(o.Say).fetch(ctx, o.Source, file); err != nil {
			return "", err
		}
	} else if _, err := os.Stat(file); err != nil {
		return "", fmt.Errorf("%w; name a bundle's file, or its http:// or https:// URL", err)
	}
	o.Say("checking the signature")
	bundle, err := o.Rauc.Info(ctx, file)
	if err != nil {
		return "", err
	}
	if bundle.Compatible != system.Compatible {
		return "", fmt.Errorf("the bundle is for the board %q, this machine is %q: take the one for this board", bundle.Compatible, system.Compatible)
	}
	o.Say(fmt.Sprintf("installing version %s beside the system that runs, %s", bundle.Version, o.Slot))
	trial := Trial{From: o.Slot, Boot: o.Boot, Version: bundle.Version, Silent: o.Silent}
	if err := folder(o.Dir).begin(trial); err != nil {
		return "", err
	}
	if err := o.Rauc.Install(ctx, file, o.Say); err != nil {
		// Nobody knows how far it came: the trial stays, so that what was written
		// is given up should it start.
		trial.Failed = "it was not installed: " + err.Error()
		return "", errors.Join(err, folder(o.Dir).begin(trial))
	}
	return bundle.Version, nil
}

// free is an error while the system that runs is on trial: the other one is what
// there is to go back to.
func (o *InstallOptions) free() error {
	t, err := folder(o.Dir).trial()
	if errors.Is(err, errDamaged) {
		return nil // the gateway forgets it as well
	}
	if err != nil || t == nil || t.From == o.Slot {
		return err
	}
	return fmt.Errorf("the system that runs, version %s, is on trial: wait until it is confirmed or given up, which sluice status shows", t.Version)
}

func isURL(s string) bool {
	return strings.HasPrefix(s, "http://") || strings.HasPrefix(s, "https://")
}

// lock keeps two installations from running at once. It ends with the process.
func lock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(folder(dir).path("lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.New("another sluice update is under way: wait until it has ended")
		}
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return func() { f.Close() }, nil
}
