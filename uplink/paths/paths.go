// Package paths finds the gateway's uplinks and keeps each usable on its own: a
// routing table and rules per uplink, so that what is bound to a path leaves by
// its interface and comes back to it, whatever the main table prefers. It changes
// nothing that it has not installed, and removes that at the end; docs/paths.md
// describes it, with the commands to look at it.
//
// The flow: the kernel says that something has changed (wake_linux.go), which is
// never looked at, only taken as a reason to read everything again
// (kernel_linux.go); a pure function says what there ought to be (plan.go); the
// difference is installed, and the paths published (monitor.go).
package paths

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path"
	"strings"
)

// Where marks, tables and priorities begin if Options does not say. Uplink n has
// mark 0x2300 + n and table 2300 + n. No bit of the marks is one that Kubernetes
// (0x4000, 0x8000) or Tailscale (0xff0000) look at; the priorities are before the
// main table's and those that VPNs use.
const (
	defaultMark     = 0x2300
	defaultTable    = 2300
	defaultPriority = 2300
)

// DefaultResolvConf is where the appliance's DHCP and PPP scripts leave what they
// learn.
const DefaultResolvConf = "/run/resolv/*.conf"

// uplinksMost is how many uplinks have tables at a time.
const uplinksMost = 8

// protocol marks the rules and routes as ours (rtm_protocol; values from 192 up
// are for whoever takes them).
const protocol = 213

// Pattern names interfaces.
type Pattern struct {
	Interface string // as path.Match has it: "wlan0", "wwan*"
	Metered   bool   // bytes over them cost money
}

// Options configures a Monitor.
type Options struct {
	// Patterns name the uplinks, in order of preference. One without a wildcard is
	// a path even while there is no such interface.
	Patterns []Pattern
	// Mark, Table and Priority are the first of the 8 socket marks, of the 8
	// routing tables and of the 30 rule priorities that may be used. 0 is 0x2300,
	// 2300 and 2300.
	Mark            uint32
	Table, Priority int
	// ResolvConf names the files with an uplink's name servers, in the form of
	// resolv.conf(5); a star stands for the interface. Empty is DefaultResolvConf.
	// An uplink without such a file is asked the servers in /etc/resolv.conf.
	ResolvConf string
	Logger     *slog.Logger
}

// Why a path is not up.
const (
	ReasonNoInterface = "no interface"
	ReasonDown        = "switched off" // administratively
	ReasonNoCarrier   = "no carrier"
	ReasonNoAddress   = "no address"
	ReasonNoRoute     = "no default route"
	ReasonTooMany     = "too many uplinks" // beyond the eighth
)

// Path is one uplink.
type Path struct {
	Name       string // of the interface
	Index      int    // of the interface, another each time it appears; 0 while there is none
	Metered    bool
	Preference int // of the pattern that names it: 0 is the first

	Addrs    []netip.Prefix // usable beyond the link, IPv4 first
	Gateways []netip.Addr   // of the default routes, IPv4 first; none if the link has two ends
	MTU      int            // of the interface, bytes

	// Mark is what sockets are marked with, and Table the routing table that they
	// then use. They stay the same as long as the process runs.
	Mark  uint32
	Table int

	// Up says that nothing here speaks against the path: that it leads anywhere,
	// only probing tells. Reason says why not.
	Up     bool
	Reason string
}

// ErrNoInterface is returned when a path's interface does not exist now.
var ErrNoInterface = errors.New(ReasonNoInterface)

// normalise returns opt with its defaults, or what is wrong with it.
func (opt Options) normalise() (Options, error) {
	if opt.Mark == 0 {
		opt.Mark = defaultMark
	}
	if opt.Table == 0 {
		opt.Table = defaultTable
	}
	if opt.Priority == 0 {
		opt.Priority = defaultPriority
	}
	if opt.ResolvConf == "" {
		opt.ResolvConf = DefaultResolvConf
	}
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	if len(opt.Patterns) == 0 {
		return opt, errors.New("uplinks: no interface is named: name at least one, such as wlan*")
	}
	for _, p := range opt.Patterns {
		if _, err := path.Match(p.Interface, ""); err != nil || p.Interface == "" {
			return opt, fmt.Errorf("uplinks: pattern %q: %w", p.Interface, path.ErrBadPattern)
		}
	}
	// Tables 253 to 255 are the kernel's own, and so are the rules 0, 32766 and 32767.
	if opt.Table < 1 || opt.Table <= 255 && opt.Table+uplinksMost > 253 || opt.Table > 1<<30 {
		return opt, fmt.Errorf("uplinks: routing tables from %d: must be from 1 to %d or from 256", opt.Table, 253-uplinksMost)
	}
	if opt.Priority < 1 || opt.Priority+priorities > 32766 {
		return opt, fmt.Errorf("uplinks: rule priorities from %d: must be from 1 to %d", opt.Priority, 32766-priorities)
	}
	return opt, nil
}

// literal says whether the pattern names exactly one interface.
func (p Pattern) literal() bool { return !strings.ContainsAny(p.Interface, `*?[\`) }

// preference returns the first pattern that names the interface, -1 if none does.
func preference(patterns []Pattern, name string) int {
	for i, p := range patterns {
		if ok, _ := path.Match(p.Interface, name); ok {
			return i
		}
	}
	return -1
}
