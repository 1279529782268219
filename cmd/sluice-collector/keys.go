package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"
)

// names is a flag that may be given several times.
type names []string

func (n *names) String() string     { return strings.Join(*n, ",") }
func (n *names) Set(s string) error { *n = append(*n, s); return nil }

// keys makes what is missing of the authority, the collector's certificate and
// the gateways' certificates. It changes nothing that is there.
func keys(_ context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("keys", flag.ContinueOnError)
	dir := flags.String("dir", "", "`folder` for the keys")
	var gateways, hosts names
	flags.Var(&gateways, "gateway", "`id` of a gateway; may be repeated")
	flags.Var(&hosts, "host", "`name` or address at which gateways reach the collector; may be repeated")
	if err := parse(flags, args, stderr, 0); err != nil {
		return err
	}
	if *dir == "" {
		fmt.Fprintln(stderr, "sluice-collector keys: --dir is missing: name the folder for the keys")
		return errUsage
	}
	var wrong []error
	for _, id := range gateways {
		wrong = append(wrong, checkGatewayID(id))
	}
	for _, host := range hosts {
		wrong = append(wrong, checkHost(host))
	}
	if err := errors.Join(wrong...); err != nil {
		return err
	}
	return makeKeys(*dir, gateways, hosts, time.Now(), stdout)
}

func makeKeys(dir string, gateways, hosts []string, now time.Time, stdout io.Writer) error {
	report := func(made bool, p pair, what string) {
		verb := "kept"
		if made {
			verb = "made"
		}
		fmt.Fprintf(stdout, "%s  %s  %s\n", verb, p.cert, what)
	}
	ca, made, err := openAuthority(dir, now)
	if err != nil {
		return err
	}
	report(made, ca.files, "the authority that both ends trust")

	collector := pairIn(dir, collectorName)
	switch made, err := ca.ensure(collector, collectorTemplate(hosts), now); {
	case errors.Is(err, errNoHost):
		return fmt.Errorf("%s: no name for it: say with --host where gateways reach the collector", collector.cert)
	case err != nil:
		return err
	default:
		report(made, collector, "the collector")
	}
	if err := checkNames(collector, hosts); err != nil {
		return err
	}
	for _, id := range gateways {
		p := pairIn(dir, id)
		made, err := ca.ensure(p, gatewayTemplate(id), now)
		if err != nil {
			return err
		}
		report(made, p, "gateway "+id)
	}

	fmt.Fprintf(stdout, "\nto the collector:   %s, %s, %s\n", ca.files.cert, collector.cert, collector.key)
	for _, id := range gateways {
		p := pairIn(dir, id)
		fmt.Fprintf(stdout, "to gateway %-8s %s, %s, %s\n", id+":", ca.files.cert, p.cert, p.key)
	}
	fmt.Fprintf(stdout, "keep offline:       %s; it is needed only to add gateways\n", ca.files.key)
	return nil
}

// checkGatewayID admits what a configuration admits as gateway.id, which must
// equal the certificate's name.
func checkGatewayID(id string) error {
	ok := id != "" && len(id) <= 64
	for _, c := range []byte(id) {
		ok = ok && ('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_')
	}
	switch {
	case !ok:
		return fmt.Errorf("gateway id %q: use 1 to 64 letters, digits, - and _", id)
	case id == authorityName || id == collectorName:
		return fmt.Errorf("gateway id %q: its files would be those of the %s: choose another", id, id)
	}
	return nil
}

func checkHost(host string) error {
	if host == "" || strings.ContainsAny(host, "/ \t@[]") || strings.Contains(host, "://") {
		return fmt.Errorf("host %q: give a name or an address alone, such as collector.example.org", host)
	}
	return nil
}

// checkNames reports hosts that a certificate which was there before does not
// have.
func checkNames(p pair, hosts []string) error {
	cert, err := p.certificate()
	if err != nil {
		return err
	}
	var missing []string
	for _, host := range hosts {
		if cert.VerifyHostname(host) != nil {
			missing = append(missing, host)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%s was there before and is not for %s: remove it and %s, and run again with every --host",
			p.cert, strings.Join(missing, ", "), filepath.Base(p.key))
	}
	return nil
}
