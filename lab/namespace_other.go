//go:build !linux

package lab

import (
	"context"
	"errors"
	"net"
)

// The two ends of the link between the lab and its namespace.
const (
	NearAddress = "198.18.77.1"
	FarAddress  = "198.18.77.2"
)

var errNoNamespaces = errors.New("make a network namespace: only Linux has them")

// Namespace is a network namespace with a link whose packets are counted; only
// Linux has them.
type Namespace struct{}

// NewNamespace returns an error on this system.
func NewNamespace() (*Namespace, error) { return nil, errNoNamespaces }

// Close does nothing.
func (n *Namespace) Close() error { return nil }

func (n *Namespace) do(f func() error) error { return f() }

// DialContext opens a connection.
func (n *Namespace) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// Traffic is what crossed a link, in both directions.
type Traffic struct {
	Packets, Bytes uint64
}

// Sub returns what crossed since before.
func (t Traffic) Sub(before Traffic) Traffic {
	return Traffic{Packets: t.Packets - before.Packets, Bytes: t.Bytes - before.Bytes}
}

// Traffic returns an error on this system.
func (n *Namespace) Traffic() (Traffic, error) { return Traffic{}, errNoNamespaces }
