package update

import (
	"strings"
	"testing"
	"time"
)

func TestDecide(t *testing.T) {
	onTrial := &Trial{From: "A", Boot: 1, Version: "2"}
	failed := &Trial{From: "A", Boot: 1, Version: "2", Failed: "no space"}
	for _, test := range []struct {
		name   string
		state  State
		action Action
		reason string
	}{
		{"no trial", State{Slot: "A", Boot: 2}, Confirm, "runs"},
		{"no trial, long after the boot", State{Slot: "A", Boot: 2, SinceBoot: time.Hour}, Confirm, "runs"},
		{"installed", State{Slot: "A", Boot: 1, Trial: onTrial, SinceBoot: time.Hour, Acked: 5}, Wait, "next reboot"},
		{"not installed", State{Slot: "A", Boot: 1, Trial: failed}, Wait, "no space"},
		{"came back by itself", State{Slot: "A", Boot: 3, Trial: onTrial, Acked: 5}, Over, "did not start"},
		{"came back after it was given up", State{Slot: "A", Boot: 3, Trial: failed}, Over, "no space"},
		{"just started", State{Slot: "B", Boot: 2, Trial: onTrial}, Wait, "on trial"},
		{"nearly too late", State{Slot: "B", Boot: 2, Trial: onTrial, SinceBoot: trialTime - 1}, Wait, "on trial"},
		{"delivered", State{Slot: "B", Boot: 2, Trial: onTrial, Acked: 1}, Confirm, "acknowledged"},
		{"delivered late", State{Slot: "B", Boot: 2, Trial: onTrial, SinceBoot: time.Hour, Acked: 1}, Confirm, "acknowledged"},
		{"delivered nothing", State{Slot: "B", Boot: 2, Trial: onTrial, SinceBoot: trialTime}, GiveUp, "no reading within 20 minutes"},
		{"started again before it was confirmed", State{Slot: "B", Boot: 3, Trial: onTrial}, Wait, "on trial"},
		{"given up, and started again", State{Slot: "B", Boot: 3, Trial: failed, Acked: 1}, GiveUp, "no space"},
		{"no collector", State{Slot: "B", Boot: 2, Trial: &Trial{From: "A", Boot: 1, Silent: true}}, Confirm, "no collector"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := Decide(test.state)
			if got.Action != test.action || !strings.Contains(got.Reason, test.reason) {
				t.Errorf("got %v, want %v with %q", got, test.action, test.reason)
			}
		})
	}
}

func TestSlotOf(t *testing.T) {
	for line, want := range map[string]string{
		"console=ttyAMA0 root=/dev/vda3 rauc.slot=B\n": "B",
		"rauc.slot=A quiet":                            "A",
		"quiet xrauc.slot=A":                           "",
		"":                                             "",
	} {
		if got := slotOf(line); got != want {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
}
