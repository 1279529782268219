package flow

import (
	"reflect"
	"testing"
	"time"
)

func TestSeries(t *testing.T) {
	s := Series{Slot: Interval, Rates: []float64{1, 3, 5, 7, 9}}
	for _, c := range []struct {
		name      string
		got, want any
	}{
		{"mean", s.Mean(), 5.0},
		{"variance", s.Variance(), 8.0},
		{"mean of nothing", Series{}.Mean(), 0.0},
		{"variance of nothing", Series{}.Variance(), 0.0},
		{"from", s.From(300 * time.Millisecond).Rates, []float64{7, 9}},
		{"from beyond the end", len(s.From(time.Minute).Rates), 0},
		{"until", s.Until(200 * time.Millisecond).Rates, []float64{1, 3}},
		{"wider slots", s.Every(2), Series{Slot: 2 * Interval, Rates: []float64{2, 6}}},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, c.got, c.want)
		}
	}
}

func TestMeter(t *testing.T) {
	origin := time.Unix(1000, 0)
	m := NewMeter(origin, time.Second)
	for _, a := range []struct {
		at    time.Duration
		bytes int
	}{
		{-time.Millisecond, 999}, {0, 1000}, {50 * time.Millisecond, 1000},
		{450 * time.Millisecond, 2000}, {460 * time.Millisecond, 0}, {time.Second, 999},
	} {
		m.Add(origin.Add(a.at), a.bytes)
	}
	want := []float64{20, 0, 0, 0, 20, 0, 0, 0, 0, 0}
	if got := m.Series().Rates; !reflect.DeepEqual(got, want) {
		t.Errorf("rates: got %v, want %v", got, want)
	}
	if got, want := m.Longest(), (Gap{450 * time.Millisecond, 550 * time.Millisecond}); got != want {
		t.Errorf("longest gap: got %v, want %v", got, want)
	}
	m.Add(origin.Add(900*time.Millisecond), 1)
	if got, want := m.Longest(), (Gap{450 * time.Millisecond, 450 * time.Millisecond}); got != want {
		t.Errorf("longest gap after an arrival: got %v, want %v", got, want)
	}
}

func TestTransportNames(t *testing.T) {
	for _, c := range []struct {
		transport Transport
		want      string
	}{
		{Transport{Protocol: TCP, Congestion: "bbr", Connections: 4}, "tcp bbr, 4 connections"},
		{Transport{Protocol: TCP, Connections: 1}, "tcp"},
		{Transport{Protocol: MPTCP, Connections: 1}, "mptcp"},
		{Transport{Protocol: SCTP, Connections: 1}, "sctp default"},
		{Transport{Protocol: SCTP, Tuned: true, Connections: 4}, "sctp tuned, 4 associations"},
	} {
		if got := c.transport.String(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
