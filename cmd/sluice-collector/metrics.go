package main

import "github.com/prometheus/client_golang/prometheus"

// metrics turns the status into metrics at each scrape, so that both say the
// same.
type metrics struct{ status func() Status }

var _ prometheus.Collector = (*metrics)(nil)

// Describe implements prometheus.Collector. Which gateways there are is not
// known in advance, so nothing is described.
func (*metrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	send := func(kind prometheus.ValueType, name, help string, value float64, labels ...string) {
		var keys, values []string
		for i := 0; i < len(labels); i += 2 {
			keys, values = append(keys, labels[i]), append(values, labels[i+1])
		}
		ch <- prometheus.MustNewConstMetric(
			prometheus.NewDesc("sluice_collector_"+name, help, keys, nil), kind, value, values...)
	}
	st := m.status()
	send(prometheus.GaugeValue, "build_info", "Always 1; the label says which version runs.", 1, "version", st.Version)
	send(prometheus.GaugeValue, "healthy", "1 while every output takes readings.", truth(st.Healthy))
	send(prometheus.CounterValue, "conflicts_total", "Writes refused because another collector had written.", float64(st.Conflicts))
	send(prometheus.CounterValue, "rejected_carriers_total", "Connections that did not join a session.", float64(st.Rejected))
	send(prometheus.GaugeValue, "memory_bytes", "Bytes received and not durable yet.", float64(st.Memory))
	for _, g := range st.Gateways {
		gateway := []string{"gateway", g.Gateway}
		send(prometheus.GaugeValue, "gateway_carriers", "Connections of a gateway; 0 while it is away.", float64(len(g.Carriers)), gateway...)
		send(prometheus.GaugeValue, "gateway_last_seen_timestamp_seconds", "When a gateway was last heard of, in seconds since 1970.",
			float64(g.LastSeen.UnixMilli())/1000, gateway...)
		for _, l := range g.Lanes {
			lane := append(gateway[:2:2], "lane", l.Lane)
			send(prometheus.CounterValue, "readings_total", "Readings made durable.", float64(l.Readings), lane...)
			send(prometheus.CounterValue, "duplicates_total", "Readings that came again and were left out.", float64(l.Duplicates), lane...)
			send(prometheus.CounterValue, "unreadable_total", "Readings set aside because they could not be decoded.", float64(l.Unreadable), lane...)
			send(prometheus.GaugeValue, "durable_sequence", "Last sequence number that all outputs hold.", float64(l.Durable), lane...)
			send(prometheus.GaugeValue, "lag_readings", "Readings received in order and not durable yet.", float64(l.Lag), lane...)
			send(prometheus.GaugeValue, "held_frames", "Frames that wait for an earlier one.", float64(l.Held), lane...)
			send(prometheus.GaugeValue, "output_fault", "1 while an output does not take readings.", truth(l.Fault != ""), lane...)
		}
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
