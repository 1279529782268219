package flow

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// The path manager's generic netlink family, linux/mptcp_pm.h.
const (
	mptcpFamily    = "mptcp_pm"
	mptcpAddAddr   = 1 // MPTCP_PM_CMD_ADD_ADDR
	mptcpSetLimits = 4 // MPTCP_PM_CMD_SET_LIMITS

	mptcpAttrAddr        = 1 // MPTCP_PM_ATTR_ADDR
	mptcpAttrRcvAddAddrs = 2
	mptcpAttrSubflows    = 3

	mptcpAddrFamily = 1 // MPTCP_PM_ADDR_ATTR_FAMILY
	mptcpAddr4      = 3
	mptcpAddrFlags  = 6

	mptcpSignal = 1 // MPTCP_PM_ADDR_FLAG_SIGNAL
)

// AllowSubflows makes a host's Multipath TCP connections use up to n more paths
// than their first, and tell their peers the extra addresses (IPv4) that lead to
// it. It holds for connections made later.
func AllowSubflows(h Host, n int, extra ...netip.Addr) error {
	err := h.Do(func() error {
		family, err := netlink.GenlFamilyGet(mptcpFamily)
		if err != nil {
			return err
		}
		limit := nl.Uint32Attr(uint32(n))
		if err := managePaths(family.ID, mptcpSetLimits,
			nl.NewRtAttr(mptcpAttrRcvAddAddrs, limit), nl.NewRtAttr(mptcpAttrSubflows, limit)); err != nil {
			return fmt.Errorf("set limits: %w", err)
		}
		for _, ip := range extra {
			address := nl.NewRtAttr(mptcpAttrAddr|unix.NLA_F_NESTED, nil)
			address.AddRtAttr(mptcpAddrFamily, binary.NativeEndian.AppendUint16(nil, unix.AF_INET))
			address.AddRtAttr(mptcpAddr4, ip.AsSlice())
			address.AddRtAttr(mptcpAddrFlags, nl.Uint32Attr(mptcpSignal))
			if err := managePaths(family.ID, mptcpAddAddr, address); err != nil {
				return fmt.Errorf("announce %s: %w", ip, err)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("configure multipath tcp: %w", err)
	}
	return nil
}

func managePaths(family uint16, command uint8, attributes ...*nl.RtAttr) error {
	request := nl.NewNetlinkRequest(int(family), unix.NLM_F_ACK)
	request.AddData(&nl.Genlmsg{Command: command, Version: 1})
	for _, a := range attributes {
		request.AddData(a)
	}
	_, err := request.Execute(unix.NETLINK_GENERIC, 0)
	return err
}
