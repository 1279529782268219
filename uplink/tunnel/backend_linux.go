package tunnel

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// netlinkTimeout ends a request that the kernel does not answer.
const netlinkTimeout = 5 * time.Second

// openBackend chooses the kernel's WireGuard where there is one, and says so.
// Sockets and devices belong to the network namespace of the calling thread.
func openBackend(log *slog.Logger) (backend, error) {
	nl, err := openNetlink()
	if err != nil {
		return nil, err
	}
	err = tryKernel(nl)
	switch {
	case err == nil:
		log.Info("tunnels use the kernel's WireGuard")
		return openKernel(nl)
	case errors.Is(err, unix.EOPNOTSUPP):
		log.Info("tunnels run in this process: the kernel has no WireGuard (module wireguard)")
		return &process{nl: nl, log: log}, nil
	}
	nl.Close()
	return nil, err
}

func openNetlink() (*netlink.Handle, error) {
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	if err := nl.SetSocketTimeout(netlinkTimeout); err != nil {
		nl.Close()
		return nil, fmt.Errorf("set netlink timeout: %w", err)
	}
	return nl, nil
}

// tryKernel makes a device and removes it. It returns EOPNOTSUPP if the kernel
// does not know what WireGuard is, after it has looked for the module.
func tryKernel(nl *netlink.Handle) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "sluice-try"
	err := nl.LinkAdd(&netlink.Wireguard{LinkAttrs: attrs})
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("make a network device: %w: run as root, or give the program the capability CAP_NET_ADMIN", err)
	case err != nil && !errors.Is(err, unix.EEXIST):
		return fmt.Errorf("make device %s: %w", attrs.Name, err)
	}
	link, err := nl.LinkByName(attrs.Name)
	if err == nil {
		err = nl.LinkDel(link)
	}
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) || errors.Is(err, unix.ENODEV) {
		return nil // another process tried at the same time
	}
	if err != nil {
		return fmt.Errorf("remove device %s: %w", attrs.Name, err)
	}
	return nil
}
