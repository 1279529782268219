package tunnel

import (
	"errors"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"sluice/atomicfile"
	"sluice/uplink/wire"
)

// What a crashed collector left becomes what the kept leases and the
// configuration say now; another collector's device is not touched.
func TestAdopt(t *testing.T) {
	needKernel(t)
	h := newHost(t)
	listen := func(dir, network string) (s *Server, err error) {
		inside(t, h.ns, func() error {
			back, err := chosenBackend("kernel", quiet())
			if err != nil {
				return err
			}
			t.Cleanup(func() { back.close() })
			s, err = newServer(ServerOptions{Dir: dir, Network: netip.MustParsePrefix(network), Port: DefaultPort, Logger: quiet()}, back)
			if err != nil && !errors.Is(err, errTaken) {
				return err
			}
			return nil
		})
		if s == nil {
			err = errTaken
		}
		return s, err
	}
	dir := t.TempDir()
	first, err := listen(dir, "10.213.0.0/16")
	if err != nil {
		t.Fatal(err)
	}
	for i, gw := range []string{"gw-1", "gw-2", "gw-3"} {
		_, err := first.Lease(gw, wire.TunnelRequest{Gateway: gw, Uplinks: []wire.TunnelUplink{{Name: "wlan0", Key: wire.TunnelKey{byte(i + 1)}}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	link := h.link(serverDevice)

	// gw-2 is removed by hand, and the network is another.
	r, err := readRegistry(filepath.Join(dir, "tunnel.json"), first.plan)
	if err != nil {
		t.Fatal(err)
	}
	delete(r.gateways, "gw-2")
	text, err := r.encode()
	if err == nil {
		err = atomicfile.Write(filepath.Join(dir, "tunnel.json"), text)
	}
	if err != nil {
		t.Fatal(err)
	}
	second, err := listen(dir, "10.99.0.0/16")
	if err != nil {
		t.Fatal(err)
	}
	if now := h.link(serverDevice); now.Attrs().Index != link.Attrs().Index {
		t.Error("device was made anew")
	}
	peers, err := second.device.peers()
	if err != nil || len(peers) != 2 || slices.ContainsFunc(peers, func(p peerState) bool { return p.public == key{2} }) {
		t.Errorf("peers %+v, %v, want those of gw-1 and gw-3", peers, err)
	}
	addrs, err := h.nl.AddrList(link, netlink.FAMILY_V4)
	if err != nil {
		t.Fatal(err)
	}
	var got []netip.Addr
	for _, a := range addrs {
		got = append(got, prefix(*a.IPNet).Addr())
	}
	slices.SortFunc(got, netip.Addr.Compare)
	if !slices.Equal(got, second.Addresses()) {
		t.Errorf("addresses %v, want %v", got, second.Addresses())
	}
	if _, err := listen(t.TempDir(), "10.99.0.0/16"); !errors.Is(err, errTaken) {
		t.Errorf("another collector: got %v, want %v", err, errTaken)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	if _, err := h.nl.LinkByName(serverDevice); err == nil {
		t.Error("device is there after the end")
	}
	first.cancel() // as a crash would have
	first.wg.Wait()
}
