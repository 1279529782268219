package main

import (
	"encoding/json"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// figure is one measured number.
type figure struct {
	Name  string  `json:"name"` // stable, for programs
	What  string  `json:"what"` // for people
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// figures are the results of a benchmark.
type figures []figure

func (f *figures) add(name, what string, value float64, unit string) {
	*f = append(*f, figure{name, what, value, unit})
}

func (f figures) find(name string) (float64, bool) {
	for _, g := range f {
		if g.Name == name {
			return g.Value, true
		}
	}
	return 0, false
}

// compare adds the ratios between what was measured.
func (f *figures) compare() {
	ratio := func(name, what, a, b string) {
		x, okX := f.find(a)
		y, okY := f.find(b)
		if okX && okY && y > 0 {
			f.add(name, what, x/y, "")
		}
	}
	ratio("throughput_ratio", "end to end, Sluice : mosquitto bridge (which keeps nothing on disk)", "end_to_end", "mosquitto_end_to_end")
	// With MQTT a message costs the same however many rooms there are.
	for _, c := range linkCases {
		ratio("link_ratio_"+c.name, "link bytes, MQTT : Sluice, "+c.what, "mqtt_bytes_single", "link_bytes_"+c.name)
	}
	ratio("link_ratio_drain", "link bytes, MQTT : Sluice, full-speed drain", "mqtt_bytes_drain", "link_bytes_drain")
}

// number writes a value with about three digits.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100 || v == math.Trunc(v):
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	default:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
}

// table is the figures in Markdown.
func (f figures) table() string {
	width, number0 := len("what"), len("value")
	for _, g := range f {
		width, number0 = max(width, len(g.What)), max(number0, len(number(g.Value)))
	}
	var b strings.Builder
	row := func(what, value, unit string) {
		fmt.Fprintf(&b, "| %-*s | %*s | %-14s |\n", width, what, number0, value, unit)
	}
	row("what", "value", "unit")
	row(strings.Repeat("-", width), strings.Repeat("-", number0-1)+":", strings.Repeat("-", 14))
	for _, g := range f {
		row(g.What, number(g.Value), g.Unit)
	}
	return b.String()
}

// lines is the figures as JSON lines.
func (f figures) lines() string {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	for _, g := range f {
		// A figure is text and a finite number: it can always be written.
		if err := encoder.Encode(g); err != nil {
			panic(err)
		}
	}
	return b.String()
}

// document is the table with its circumstances.
func (f figures) document() string {
	return fmt.Sprintf(`# Benchmark

Made by %[1]smake bench%[1]s (%[1]sbin/sluice-lab bench --save docs/results%[1]s) on %[2]s:
%[3]s/%[4]s, %[5]d processors, publishers, gateway and collector on the same
machine.

%[6]s
How it is measured:

- Publishers: 8 clients, QoS 1, a window of 100 messages each, payloads as
  Zigbee2MQTT sends them, of about 115 bytes with six values. A message is
  acknowledged after it is synced to disk. "End to end" ends when an ordinary
  NATS client has received the last reading, which the collector has synced,
  too. Every message is then read back from the stream and checked.
- mosquitto: the same publishers, a broker, a bridge to a second broker, a
  subscriber there; nothing is written to disk.
- Bytes on the link: everything that crosses a virtual Ethernet link between
  two network namespaces, both directions, with IP and TCP headers, TLS and
  acknowledgements, by the kernel's counters, one segment a packet. Office data,
  six values a message. "Once a minute" is played faster: all rooms report
  together every few seconds and the flush interval is one second; that makes the
  same packets as every minute with 60 s. Neither Sluice (keepalive 90 s) nor
  MQTT needs keepalives at this pace, so there are none in the figures.
- MQTT for comparison: paho.mqtt.golang to mosquitto, TLS with certificates of
  both ends, QoS 1, one message after another, each in segments of its own; for
  the drain each as soon as the one before is acknowledged.
- Written bytes: write_bytes of /proc/PID/io, which counts whole pages.
`, "`", time.Now().UTC().Format(time.DateOnly), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), f.table())
}
