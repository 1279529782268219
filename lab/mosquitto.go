package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"sluice/lab/topology"
)

// ErrNoMosquitto is returned when the broker to compare with is not installed.
var ErrNoMosquitto = errors.New("mosquitto is not installed: apt-get install mosquitto")

// MosquittoOptions describe a mosquitto broker.
type MosquittoOptions struct {
	Dir     string // for its configuration, log and persistent sessions
	Name    string // of its files in Dir
	Address string // numeric
	Bridge  string // address of a broker to pass everything on to; may be empty
	Keys    *Keys  // nil for no TLS; else certificates of both ends are asked for
	// Persistent keeps sessions over an orderly restart.
	Persistent bool
	Host       *topology.Host // to run on, nil for the lab's own
}

// StartMosquitto starts a broker and waits until it can be reached.
func StartMosquitto(ctx context.Context, o MosquittoOptions) (*Process, error) {
	path, err := exec.LookPath("mosquitto")
	if err != nil {
		// Debian puts it where only root's PATH leads.
		if path = "/usr/sbin/mosquitto"; !exists(path) {
			return nil, ErrNoMosquitto
		}
	}
	host, port, err := net.SplitHostPort(o.Address)
	if err != nil {
		return nil, fmt.Errorf("start mosquitto: %w", err)
	}
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("listener %s %s", port, host)
	line("allow_anonymous true")
	line("max_inflight_messages 0\nmax_queued_messages 0")
	if k := o.Keys; k != nil {
		line("cafile %s\ncertfile %s\nkeyfile %s\nrequire_certificate true", k.CA, k.Cert, k.Key)
	}
	if o.Persistent {
		line("persistence true\npersistence_location %s/", o.Dir)
		line("persistence_file %s.db", o.Name)
	}
	if o.Bridge != "" {
		line("connection lab\naddress %s\ntopic # out 1\ncleansession false\nnotifications false", o.Bridge)
	}
	if os.Getuid() == 0 {
		line("user root") // it would give up the right to read keys and folder
	}
	config := filepath.Join(o.Dir, o.Name+".conf")
	if err := os.WriteFile(config, []byte(b.String()), 0o600); err != nil {
		return nil, fmt.Errorf("start mosquitto: %w", err)
	}
	p, err := StartProcess(ProcessOptions{
		Path: path, Args: []string{"-c", config}, Dir: o.Dir,
		Log: filepath.Join(o.Dir, o.Name+".log"), Host: o.Host,
	})
	if err != nil {
		return nil, err
	}
	return p, p.Await(ctx, func(ctx context.Context) error {
		c, err := o.Host.DialContext(ctx, "tcp", o.Address)
		if err != nil {
			return err
		}
		return c.Close()
	})
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
