package tunnel

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/tun"
)

// tunDevice is a TUN device that takes one packet at a time. WireGuard's own way
// to open one lets the kernel join packets, for which it sets aside 128 buffers of
// 64 KB in several places, and wakes every second to look whether it is up.
type tunDevice struct {
	tun.Device

	mu     sync.Mutex // guards what follows
	events chan tun.Event
	closed bool
}

func openTUN(name string) (*tunDevice, error) {
	const path = "/dev/net/tun"
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w: the kernel needs the module tun, and this process the right to use it", path, err)
	}
	request, err := unix.NewIfreq(name)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("make device %s: %w", name, err)
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("make device %s: %w", name, err)
	}
	d, _, err := tun.CreateUnmonitoredTUNFromFD(fd) // owns fd from here
	if err != nil {
		return nil, fmt.Errorf("make device %s: %w", name, err)
	}
	return &tunDevice{Device: d, events: make(chan tun.Event, 1)}, nil
}

// Events implements tun.Device.
func (d *tunDevice) Events() <-chan tun.Event { return d.events }

// mtuChanged has WireGuard look at the MTU, to which it pads packets.
func (d *tunDevice) mtuChanged() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	select {
	case d.events <- tun.EventMTUUpdate:
	default: // it will look soon
	}
}

// Close implements tun.Device.
func (d *tunDevice) Close() error {
	d.mu.Lock()
	if !d.closed {
		d.closed = true
		close(d.events)
	}
	d.mu.Unlock()
	return d.Device.Close()
}
