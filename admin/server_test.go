package admin

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

func serve(t *testing.T, status func() Status) (*Server, string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "sluice.sock")
	s, err := Serve(Options{Status: status, Socket: socket, Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, socket
}

// TestSocket checks that the socket is for its owner and group only, that a
// stale one is replaced and a live one is not.
func TestSocket(t *testing.T) {
	s, socket := serve(t, busy)
	info, err := os.Stat(socket)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := info.Mode().Perm(), os.FileMode(0o660); got != want {
		t.Errorf("permissions: got %o, want %o", got, want)
	}
	options := s.options
	options.Listen = ""
	if _, err := Serve(options); err == nil || !strings.Contains(err.Error(), "a gateway runs already") {
		t.Errorf("second server: got %v, want a refusal", err)
	}
	if _, err := os.Stat(socket); err != nil {
		t.Errorf("the refused server removed the first one's socket: %v", err)
	}

	stale := filepath.Join(t.TempDir(), "stale.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	options.Socket = stale
	s, err = Serve(options)
	if err != nil {
		t.Fatalf("stale socket: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}

	options.Socket = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(options.Socket, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Serve(options); err == nil || !strings.Contains(err.Error(), "something else has this name") {
		t.Errorf("file in the socket's place: got %v, want a refusal", err)
	}
}

func TestFetch(t *testing.T) {
	_, socket := serve(t, busy)
	got, document, err := Fetch(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	if want := busy(); !reflect.DeepEqual(got.Store, want.Store) || !got.Uplink.Since.Equal(want.Uplink.Since) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if !json.Valid(document) || !strings.Contains(string(document), `"oldest_s": 7200`) {
		t.Errorf("document: %s", document)
	}
	if _, _, err := Fetch(t.Context(), socket+"x"); err == nil || !strings.Contains(err.Error(), "is the gateway running") {
		t.Errorf("no socket: got %v, want a hint", err)
	}
	_, socket = serve(t, func() Status { return Status{StatusVersion: 2} })
	if _, _, err := Fetch(t.Context(), socket); err == nil || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("newer status: got %v, want a refusal", err)
	}
}

func TestHealthz(t *testing.T) {
	status := busy()
	s, _ := serve(t, func() Status { return status })
	get := func() (int, string) {
		r, err := http.Get("http://" + s.Address() + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		b, _ := io.ReadAll(r.Body)
		return r.StatusCode, string(b)
	}
	if code, body := get(); code != 200 || body != "ok\n" {
		t.Errorf("got %d %q, want 200 ok", code, body)
	}
	// Nothing moves: the disk takes nothing, and the collector acknowledges nothing.
	status.Store.Paused, status.Uplink.LastAck = "disk full: free some space", noon().Add(-time.Hour)
	status.Health = Judge(&status, time.Second)
	want := "nothing is taken in: disk full: free some space\n" +
		"nothing was acknowledged for 5m00s although the link is up and 250120 readings wait\n"
	if code, body := get(); code != 503 || body != want {
		t.Errorf("got %d %q, want 503 and %q", code, body, want)
	}
}

// TestMetricsConventions has Prometheus's own linter, that of promtool, look at a
// scrape.
func TestMetricsConventions(t *testing.T) {
	s, _ := serve(t, busy)
	r, err := http.Get("http://" + s.Address() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	problems, err := promlint.New(r.Body).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestMetrics scrapes and reads every line of the text format; names of devices
// and topics that are no UTF-8 must not spoil a scrape.
func TestMetrics(t *testing.T) {
	s, _ := serve(t, func() Status {
		s := busy()
		s.Ingest.RawByReason["\xff"] = 1
		s.Ingest.Sources[1].Name = "mqtt \"\n\\"
		return s
	})
	r, err := http.Get("http://" + s.Address() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if r.StatusCode != 200 {
		t.Fatalf("got %s", r.Status)
	}
	got := map[string]float64{}
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "#") {
			continue
		}
		i := strings.LastIndexByte(line, ' ')
		v, err := strconv.ParseFloat(line[i+1:], 64)
		if err != nil {
			t.Errorf("line %q: %v", line, err)
		}
		got[line[:i]] = v
	}
	for name, want := range map[string]float64{
		`sluice_info{gateway="gw-1",version="1.2.3"}`: 1,
		`sluice_healthy`:                                                                 1,
		`sluice_ingest_readings_total`:                                                   700000,
		`sluice_backlog_readings{lane="backfill"}`:                                       250000,
		`sluice_backlog_oldest_seconds{lane="live"}`:                                     0.4,
		`sluice_store_removed_total{reason="quota"}`:                                     44,
		`sluice_source_up{source="mqtt \"\n\\"}`:                                         0,
		`sluice_ingest_raw_total{reason="` + "\ufffd" + `"}`:                             1,
		`sluice_uplink_up`:                                                               1,
		`sluice_uplink_carrier_info{carrier="tcp",path="wlan0",remote="192.0.2.1:7600"}`: 1,
		`sluice_uplink_last_ack_timestamp_seconds`:                                       1.77236639998e+09,
		`sluice_uplink_delivered_total`:                                                  448880,
		`sluice_uplink_resent_total`:                                                     12,
		`sluice_uplink_given_up_total`:                                                   1,
		fmt.Sprintf(`sluice_devices{state=%q}`, "offline"):                               2,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s: got %v (there: %v), want %v", name, v, ok, want)
		}
	}
}
