package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"sluice/collector"
	"sluice/reading"
)

// page answers /status, /metrics and /healthz.
type page struct {
	collector interface{ Stats() collector.Stats }
	outputs   []string
	readAt    string // where NATS clients can read
	started   time.Time
}

// Status is the document at /status. Its fields are only ever added to.
type Status struct {
	Version   string          `json:"version"`
	Started   time.Time       `json:"started"`
	Outputs   []string        `json:"outputs"`
	NATS      string          `json:"nats,omitempty"` // where clients can read
	Healthy   bool            `json:"healthy"`
	Faults    []string        `json:"faults"` // why an output does not take readings
	Conflicts uint64          `json:"conflicts"`
	Rejected  uint64          `json:"rejected"`
	Memory    int             `json:"memory_bytes"` // received and not durable yet
	Gateways  []GatewayStatus `json:"gateways"`
}

// GatewayStatus is one gateway's session.
type GatewayStatus struct {
	Gateway   string          `json:"gateway"`
	Epoch     string          `json:"epoch"` // 16 hexadecimal digits
	Connected bool            `json:"connected"`
	LastSeen  time.Time       `json:"last_seen"`
	Carriers  []CarrierStatus `json:"carriers"`
	Lanes     []LaneStatus    `json:"lanes"` // most urgent first
}

// CarrierStatus is one carrier of a session.
type CarrierStatus struct {
	Kind        string  `json:"kind"`
	Remote      string  `json:"remote"`
	RTT         float64 `json:"rtt_s"`
	Retransmits uint64  `json:"retransmits"`
	BytesIn     uint64  `json:"bytes_in"`
	BytesOut    uint64  `json:"bytes_out"`
}

// LaneStatus is one lane, counted since the collector started.
type LaneStatus struct {
	Lane       string `json:"lane"`
	Durable    uint64 `json:"durable"` // last sequence number that all outputs hold
	Lag        uint64 `json:"lag"`     // received in order and not durable yet
	Held       int    `json:"held"`    // frames that wait for an earlier one
	Readings   uint64 `json:"readings"`
	Duplicates uint64 `json:"duplicates"`
	Unreadable uint64 `json:"unreadable"`
	Fault      string `json:"fault,omitempty"`
}

func (p *page) status() Status {
	st := p.collector.Stats()
	out := Status{Version: version, Started: p.started, Outputs: p.outputs, NATS: p.readAt, Healthy: true, Faults: []string{},
		Conflicts: st.Conflicts, Rejected: st.Rejected, Memory: st.Memory, Gateways: []GatewayStatus{}}
	for _, s := range st.Sessions {
		g := GatewayStatus{Gateway: s.Gateway, Epoch: fmt.Sprintf("%016x", s.Epoch), Connected: len(s.Carriers) > 0,
			LastSeen: s.LastSeen, Carriers: []CarrierStatus{}}
		for _, c := range s.Carriers {
			g.Carriers = append(g.Carriers, CarrierStatus{Kind: c.Kind, Remote: c.Remote, RTT: c.RTT.Seconds(),
				Retransmits: c.Resent, BytesIn: c.BytesIn, BytesOut: c.BytesOut})
		}
		for i, l := range s.Lanes {
			lane := reading.Lane(i).String()
			g.Lanes = append(g.Lanes, LaneStatus{Lane: lane, Durable: l.Durable, Lag: l.Lag, Held: l.Held,
				Readings: l.Readings, Duplicates: l.Duplicates, Unreadable: l.Unreadable, Fault: l.Fault})
			if l.Fault != "" {
				out.Healthy = false
				out.Faults = append(out.Faults, fmt.Sprintf("%s lane %s: %s", s.Gateway, lane, l.Fault))
			}
		}
		out.Gateways = append(out.Gateways, g)
	}
	return out
}

func (p *page) handler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(&metrics{status: p.status},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		e.Encode(p.status()) // the reader is gone if this fails
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		st := p.status()
		if !st.Healthy {
			http.Error(w, strings.Join(st.Faults, "\n"), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}
