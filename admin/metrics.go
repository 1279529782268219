package admin

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// registry holds the gateway's metrics and the process's.
func registry(status func() Status) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(&metrics{status: status},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// metrics turns the status into metrics at every scrape, so that both always
// say the same.
type metrics struct {
	status func() Status
}

var _ prometheus.Collector = (*metrics)(nil)

// Describe announces nothing: which metrics there are depends on the sources
// and reasons that the status holds.
func (*metrics) Describe(chan<- *prometheus.Desc) {}

// Collect sends one scrape's metrics.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	s := m.status()
	send := func(kind prometheus.ValueType, name, help string, value float64, labels ...string) {
		var keys, values []string
		for i := 0; i < len(labels); i += 2 {
			keys, values = append(keys, labels[i]), append(values, labels[i+1])
		}
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("sluice_"+name, help, keys, nil), kind, value, values...)
	}
	counter := func(name, help string, value uint64, labels ...string) {
		send(prometheus.CounterValue, name, help, float64(value), labels...)
	}
	gauge := func(name, help string, value float64, labels ...string) {
		send(prometheus.GaugeValue, name, help, value, labels...)
	}

	gauge("info", "Always 1; the labels say which gateway and software this is.", 1, "gateway", s.Gateway, "version", s.Software)
	gauge("healthy", "1 while readings move, 0 if not; /healthz says why.", truth(s.Health.OK))
	gauge("configuration_refused", "1 if the configuration file was changed to something that cannot be taken.", truth(s.Configuration.Refused != ""))
	gauge("clock_synchronised", "1 if the clock is set.", truth(s.Clock.Quality == "synchronised"))

	in := &s.Ingest
	counter("ingest_messages_total", "Messages taken in.", in.Messages)
	counter("ingest_readings_total", "Readings decoded from them.", in.Readings)
	counter("ingest_null_total", "Readings that say that there is no value.", in.Nulls)
	counter("ingest_invalid_total", "Readings with a number that means no measurement.", in.Invalid)
	for reason, n := range in.RawByReason {
		counter("ingest_raw_total", "Payloads that could not be read and are kept as they came, by reason.", n, "reason", validUTF8(reason))
	}
	for _, src := range in.Sources {
		name := validUTF8(src.Name)
		gauge("source_up", "1 if the source of readings works.", truth(src.Up), "source", name)
		gauge("source_clients", "Clients that are connected.", float64(src.Clients), "source", name)
		counter("source_messages_total", "Messages of the source.", src.Messages, "source", name)
		counter("source_refused_total", "Messages not taken, which the sender was told.", src.Refused, "source", name)
		for reason, n := range src.RefusedByReason {
			counter("source_refused_by_reason_total", "Messages not taken, by reason, where the source knows it.", n, "source", name, "reason", validUTF8(reason))
		}
		counter("source_undelivered_total", "Messages that local subscribers did not get because of limits.", src.Undelivered, "source", name)
		counter("source_unretained_total", "Messages that were not retained because of limits.", src.Unretained, "source", name)
		counter("source_dropped_total", "Messages not taken, which the sender cannot know (QoS 0).", src.Dropped, "source", name)
	}
	gauge("devices", "Devices by what they last said of themselves.", float64(s.Devices.Online), "state", "online")
	gauge("devices", "Devices by what they last said of themselves.", float64(s.Devices.Offline), "state", "offline")

	st := &s.Store
	for _, l := range st.Lanes {
		gauge("backlog_readings", "Readings that wait for the collector.", float64(l.Readings), "lane", l.Name)
		gauge("backlog_bytes", "Bytes of the readings that wait.", float64(l.Bytes), "lane", l.Name)
		gauge("backlog_oldest_seconds", "How long the first of them has waited.", l.OldestSeconds, "lane", l.Name)
	}
	counter("store_appended_total", "Readings stored.", st.Appended)
	counter("store_duplicates_total", "Readings that were sent again and are stored once.", st.Duplicates)
	for reason, n := range st.Removed {
		counter("store_removed_total", "Readings removed before they were delivered, by reason, since the store was created.", n, "reason", validUTF8(reason))
	}
	gauge("store_file_bytes", "Size of the store's file.", float64(st.FileBytes))
	gauge("store_used_bytes", "Bytes in use within it.", float64(st.UsedBytes))
	gauge("store_quota_bytes", "The most that may be in use.", float64(st.QuotaBytes))
	gauge("store_paused", "1 if nothing can be stored at present.", truth(st.Paused != ""))
	counter("store_commits_total", "Commits synced to disk.", st.Commits)
	counter("store_written_bytes_total", "Bytes written to disk.", st.WrittenBytes)
	gauge("store_commit_seconds", "How long the last commit took.", st.CommitSeconds)
	gauge("store_commit_longest_seconds", "How long the longest commit took.", st.CommitLongestSeconds)

	u := &s.Uplink
	gauge("uplink_up", "1 while a collector takes readings.", truth(u.Up))
	if u.Up {
		gauge("uplink_carrier_info", "Always 1; the labels say over what readings go at present.", 1,
			"carrier", validUTF8(u.Carrier), "path", validUTF8(u.Path), "remote", validUTF8(u.Remote))
		gauge("uplink_rtt_seconds", "Round-trip time to the collector.", u.RTTSeconds)
	}
	if !u.LastAck.IsZero() {
		gauge("uplink_last_ack_timestamp_seconds", "When the collector acknowledged readings last, in Unix time.", float64(u.LastAck.UnixMilli())/1e3)
	}
	for i := range u.Paths {
		p := &u.Paths[i]
		name := validUTF8(p.Name)
		gauge("path_usable", "1 if the path reaches the collector.", truth(p.Usable), "path", name)
		gauge("path_primary", "1 for the path that readings go by.", truth(p.Primary), "path", name)
		gauge("path_loss_ratio", "Part of the packets lost in the last slot.", p.LossLast/100, "path", name)
		gauge("path_rtt_seconds", "Round-trip time of the path.", p.RTTSeconds, "path", name)
		counter("path_sent_bytes_total", "Bytes that the interface has sent.", p.SentBytes, "path", name)
		counter("path_received_bytes_total", "Bytes that the interface has received.", p.RecvBytes, "path", name)
	}
	counter("uplink_delivered_total", "Readings that the collector acknowledged.", u.Delivered)
	counter("uplink_resent_total", "Readings sent again, since a carrier was lost or stalled.", u.Resent)
	counter("uplink_given_up_total", "Readings removed because they are larger than the collector's frames.", u.GivenUp)
	counter("uplink_frames_total", "Frames sent.", u.Frames)
	counter("uplink_retries_total", "Attempts to reach a collector after a failure.", u.Retries)
	counter("uplink_sent_bytes_total", "Bytes sent.", u.SentBytes)
	counter("uplink_received_bytes_total", "Bytes received.", u.RecvBytes)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
