//go:build !linux

package topology

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os/exec"
)

var errOnlyLinux = errors.New("make a network: only Linux has network namespaces; run it in the lab's guest")

// Host is a network namespace; only Linux has them.
type Host struct{}

// NewHost returns an error on this system.
func NewHost(string) (*Host, error) { return nil, errOnlyLinux }

// Close does nothing.
func (h *Host) Close() error { return nil }

// Do calls f.
func (h *Host) Do(f func() error) error { return f() }

// Start starts a program.
func (h *Host) Start(cmd *exec.Cmd) error { return cmd.Start() }

// DialContext connects to an address.
func (h *Host) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// EndOptions describe one end of a link.
type EndOptions struct {
	Host    *Host
	Device  string
	Address netip.Prefix
}

// Link is a pair of virtual Ethernet devices; only Linux has them.
type Link struct{}

// Connect returns an error on this system.
func Connect(EndOptions, EndOptions) (*Link, error) { return nil, errOnlyLinux }

// Close does nothing.
func (l *Link) Close() error { return nil }

// Traffic returns an error on this system.
func (l *Link) Traffic() (Traffic, error) { return Traffic{}, errOnlyLinux }
