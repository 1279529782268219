package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"
)

const statusTimeout = 5 * time.Second

// status shows what the collector that runs with a configuration is doing.
func status(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("status", flag.ContinueOnError)
	path := flags.String("config", "/etc/sluice/collector.toml", "configuration `file` of the running collector")
	asJSON := flags.Bool("json", false, "for programs")
	if err := parse(flags, args, stderr, 0); err != nil {
		return err
	}
	c, err := load(*path, stderr)
	if err != nil {
		return err
	}
	if c.Collector.MetricsListen == "" {
		return fmt.Errorf("%s: collector.metrics_listen is off: give it an address and restart the collector", *path)
	}
	document, err := fetch(ctx, c.Collector.MetricsListen)
	if err != nil {
		return fmt.Errorf("%w: is the collector running?", err)
	}
	if *asJSON {
		_, err := stdout.Write(document)
		return err
	}
	var st Status
	if err := json.Unmarshal(document, &st); err != nil {
		return fmt.Errorf("status of the collector: %w", err)
	}
	return st.write(stdout, time.Now())
}

func fetch(ctx context.Context, address string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	// The wildcard addresses are good for listening only.
	address = strings.Replace(strings.Replace(address, "0.0.0.0:", "127.0.0.1:", 1), "[::]:", "[::1]:", 1)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/status", nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	document, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, errors.New(request.URL.String() + ": " + response.Status)
	}
	return document, nil
}

// write shows the status to a person.
func (s *Status) write(w io.Writer, now time.Time) error {
	fmt.Fprintf(w, "collector %s, up %s, outputs: %s\n", s.Version, ago(now, s.Started), strings.Join(s.Outputs, ", "))
	if s.NATS != "" {
		fmt.Fprintf(w, "read with: nats -s %s stream view\n", s.NATS)
	}
	for _, f := range s.Faults {
		fmt.Fprintf(w, "FAULT  %s\n", f)
	}
	if len(s.Gateways) == 0 {
		_, err := fmt.Fprintln(w, "no gateway has connected since the start")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nGATEWAY\tVIA\tHEARD\tLANE\tREADINGS\tDURABLE\tLAG\tAGAIN\tUNREADABLE")
	for _, g := range s.Gateways {
		via := "away"
		if len(g.Carriers) > 0 {
			var carriers []string
			for _, c := range g.Carriers {
				carriers = append(carriers, fmt.Sprintf("%s %s", c.Kind, time.Duration(c.RTT*float64(time.Second)).Round(time.Millisecond/10)))
			}
			via = strings.Join(carriers, ", ")
		}
		name, heard := g.Gateway, ago(now, g.LastSeen)
		for _, l := range g.Lanes {
			if l.Durable == 0 && l.Lag == 0 && l.Lane != "live" {
				continue
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\n", name, via, heard, l.Lane, l.Readings, l.Durable, l.Lag, l.Duplicates, l.Unreadable)
			name, via, heard = "", "", ""
		}
	}
	return t.Flush()
}

func ago(now, then time.Time) string { return now.Sub(then).Round(time.Second).String() }
