package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func freeAddress(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// site writes keys and a configuration, and returns its path and the address of
// the status.
func site(t *testing.T) (path, metrics string) {
	t.Helper()
	dir := t.TempDir()
	mustRun(t, "keys", "--dir", filepath.Join(dir, "keys"), "--host", "127.0.0.1")
	path, metrics = filepath.Join(dir, "collector.toml"), freeAddress(t)
	text := fmt.Sprintf(`version = 1
[collector]
data_dir = "data"
listen = [%q]
ca = "keys/ca.crt"
cert = "keys/collector.crt"
key = "keys/collector.key"
metrics_listen = %q
[jetstream]
listen = %q
[files]
`, freeAddress(t), metrics, freeAddress(t))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, metrics
}

func get(ctx context.Context, url string) (int, string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

func TestRun(t *testing.T) {
	path, metrics := site(t)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	running, signal := context.WithCancel(ctx)
	defer signal()
	var log bytes.Buffer
	done := make(chan int, 1)
	go func() { done <- run(running, []string{"run", "--config", path}, io.Discard, &log) }()
	for {
		if status, _, err := get(ctx, "http://"+metrics+"/healthz"); err == nil && status == http.StatusOK {
			break
		}
		select {
		case status := <-done:
			t.Fatalf("run: exit status %d\n%s", status, log.String())
		case <-ctx.Done():
			t.Fatal("the collector does not come up")
		case <-time.After(10 * time.Millisecond):
		}
	}
	if _, text, err := get(ctx, "http://"+metrics+"/metrics"); err != nil || !strings.Contains(text, "sluice_collector_healthy 1") {
		t.Errorf("metrics: got %q, %v", text, err)
	}
	if got := mustRun(t, "status", "--config", path); !strings.Contains(got, "outputs: jetstream, files") {
		t.Errorf("status: got %q", got)
	}
	var st Status
	if err := json.Unmarshal([]byte(mustRun(t, "status", "--config", path, "--json")), &st); err != nil || !st.Healthy || st.NATS == "" {
		t.Errorf("status --json: got %+v, %v", st, err)
	}
	signal()
	if status := <-done; status != 0 {
		t.Fatalf("run: exit status %d after the signal\n%s", status, log.String())
	}
}

func TestCommands(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "collector.toml")
	if err := os.WriteFile(broken, []byte("version = 1\n[collector]\nlisten = 7\n[jetstream]\nlissten = \"x\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	good, _ := site(t)
	for _, test := range []struct {
		args   []string
		status int
		want   string
	}{
		{nil, 2, "usage"},
		{[]string{"help"}, 0, "check-config"},
		{[]string{"fly"}, 2, `unknown command "fly"`},
		{[]string{"run", "--fly"}, 2, "fly"},
		{[]string{"version"}, 0, "sluice-collector unknown"},
		{[]string{"init-config"}, 0, "[jetstream]"},
		{[]string{"check-config"}, 2, "0 arguments given"},
		{[]string{"check-config", good}, 0, "no faults"},
		{[]string{"check-config", broken}, 1, broken + ":5: jetstream.lissten"},
		{[]string{"check-config", broken + ".not"}, 1, "no such file"},
		{[]string{"run", "--config", broken}, 1, broken + ":3: collector.listen"},
		{[]string{"status", "--config", good}, 1, "is the collector running?"},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			status, stdout, stderr := runCommand(t, test.args...)
			if status != test.status || !strings.Contains(stdout+stderr, test.want) {
				t.Fatalf("got exit status %d and %q, want %d and %q", status, stdout+stderr, test.status, test.want)
			}
		})
	}
}
