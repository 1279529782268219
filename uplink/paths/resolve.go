package paths

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	lookupTimeout  = 10 * time.Second
	serverTimeout  = time.Second            // in the first round; each round doubles it
	otherFamily    = 250 * time.Millisecond // how long the second family may take longer
	nameserverPort = 53
	serversMost    = 3 // as many as the system's own resolver asks
)

// systemResolvConf are the files asked for name servers if the uplink has none of
// its own, the latter where the former names only a resolver on this machine:
// such a one asks over whichever uplink it likes, and cannot be reached from a
// socket that is bound to one.
var systemResolvConf = [...]string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"}

// control is what ties a socket to a path.
type control func(ctx context.Context, network, address string, c syscall.RawConn) error

// LookupNetIP looks a name up over the path alone, for the families that the path
// has addresses of. It tries the name servers again and again until ctx ends, or
// for ten seconds. An address is returned as it is.
func (m *Monitor) LookupNetIP(ctx context.Context, path, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	addrs, err := m.lookup(ctx, path, host)
	if err != nil {
		return nil, fmt.Errorf("look up %s over %s: %w", host, path, err)
	}
	slices.SortStableFunc(addrs, func(a, b netip.Addr) int { return cmp.Compare(a.BitLen(), b.BitLen()) })
	return addrs, nil
}

func (m *Monitor) lookup(ctx context.Context, path, host string) ([]netip.Addr, error) {
	p, err := m.path(path)
	if err != nil {
		return nil, err
	}
	var networks []string
	if hasFamily(p.Addrs, false) {
		networks = append(networks, "ip4")
	}
	if hasFamily(p.Addrs, true) {
		networks = append(networks, "ip6")
	}
	if len(networks) == 0 {
		return nil, errors.New(ReasonNoAddress)
	}
	servers := nameservers(p, append([]string{strings.ReplaceAll(m.opt.ResolvConf, "*", path)}, systemResolvConf[:]...))
	if len(servers) == 0 {
		return nil, fmt.Errorf("no name server that can be asked over it: name one in %s or /etc/resolv.conf", m.opt.ResolvConf)
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	return lookup(ctx, m.Control(path), servers, networks, host)
}

// nameservers returns the servers of the first file that names any which the path
// can reach.
func nameservers(p Path, files []string) []netip.AddrPort {
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue // most have only one of them
		}
		servers := slices.DeleteFunc(parseResolvConf(string(b)), func(a netip.Addr) bool {
			return a.IsLoopback() || a.IsUnspecified() || !hasFamily(p.Addrs, a.Is6())
		})
		if len(servers) == 0 {
			continue
		}
		var at []netip.AddrPort
		for _, a := range servers[:min(len(servers), serversMost)] {
			at = append(at, netip.AddrPortFrom(a, nameserverPort))
		}
		return at
	}
	return nil
}

// parseResolvConf returns the name servers in a file as resolv.conf(5) describes.
func parseResolvConf(text string) []netip.Addr {
	var servers []netip.Addr
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		if a, err := netip.ParseAddr(fields[1]); err == nil {
			servers = append(servers, a.Unmap())
		}
	}
	return servers
}

// lookup asks one server after the other, round and round, until one knows or
// there is no time left. A server's "no such name" is believed.
func lookup(ctx context.Context, control control, servers []netip.AddrPort, networks []string, host string) ([]netip.Addr, error) {
	for timeout := serverTimeout; ; timeout *= 2 {
		began := time.Now()
		for _, server := range servers {
			addrs, err := ask(ctx, timeout, control, server, networks, host)
			if err == nil || notFound(err) {
				return addrs, err
			}
			if ctx.Err() != nil {
				return nil, err
			}
		}
		// Errors at once, such as a network that is unreachable, are no reason for
		// haste.
		select {
		case <-time.After(timeout - time.Since(began)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func notFound(err error) bool {
	var dns *net.DNSError
	return errors.As(err, &dns) && dns.IsNotFound
}

// ask asks one server for all families at once. It does not wait for one that
// stays silent when the other has answered: some servers drop questions for IPv6.
func ask(ctx context.Context, timeout time.Duration, control control, server netip.AddrPort, networks []string, host string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		dialer := net.Dialer{ControlContext: control}
		return dialer.DialContext(ctx, network, server.String())
	}}
	type result struct {
		addrs []netip.Addr
		err   error
	}
	results := make(chan result, len(networks))
	for _, network := range networks {
		go func() {
			addrs, err := resolver.LookupNetIP(ctx, network, host)
			results <- result{addrs, err}
		}()
	}
	var found []netip.Addr
	var failed error
	var enough <-chan time.Time
	for range networks {
		select {
		case r := <-results:
			if failed == nil || notFound(failed) && r.err != nil {
				failed = r.err // that it is not known in one family does not settle the other
			}
			for _, a := range r.addrs {
				found = append(found, a.Unmap())
			}
			if len(found) > 0 && enough == nil {
				enough = time.After(otherFamily)
			}
		case <-enough:
			return found, nil
		}
	}
	if len(found) > 0 {
		return found, nil
	}
	return nil, failed
}
