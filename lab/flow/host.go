package flow

// Host is a place on the network.
type Host interface {
	// Do calls f on a thread whose network is the host's: sockets that f opens
	// and processes that it starts belong there.
	Do(f func() error) error
}

// Here is the network of this process.
type Here struct{}

var _ Host = Here{}

// Do implements Host.
func (Here) Do(f func() error) error { return f() }
