package tunnel

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	wireguard "golang.zx2c4.com/wireguard/device"
)

// process is the backend that runs WireGuard in this process, over TUN devices.
// These end with the process, however it ends.
type process struct {
	nl  *netlink.Handle
	log *slog.Logger
}

var _ backend = (*process)(nil)

// sweep has no devices to remove.
func (p *process) sweep(ours func(name string, public key) bool) error {
	return sweepRules(p.nl, func(name string) bool { return ours(name, key{}) })
}

func (p *process) create(name string, s settings, peers []peer) (device, error) {
	if _, found, err := findLink(p.nl, name); found || err != nil {
		if err == nil {
			err = fmt.Errorf("make device %s: %w", name, errTaken)
		}
		return nil, err
	}
	t, err := openTUN(name)
	if err != nil {
		return nil, err
	}
	l, found, err := findLink(p.nl, name)
	if err == nil && !found {
		err = fmt.Errorf("make device %s: %w", name, errGone)
	}
	if err == nil {
		err = l.setMTU(s.mtu) // WireGuard reads it once
	}
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	log := p.log.With("device", name)
	d := &processDevice{link: l, tun: t, wg: wireguard.NewDevice(t, &bind{many: s.many}, &wireguard.Logger{
		Verbosef: wireguard.DiscardLogf,
		// A path that is down says so every few seconds.
		Errorf: func(format string, args ...any) { log.Debug("wireguard", "says", fmt.Sprintf(format, args...)) },
	})}
	if err := d.start(s, peers); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

func (p *process) close() error {
	p.nl.Close()
	return nil
}

// processDevice is a device that this process drives.
type processDevice struct {
	link *link
	tun  *tunDevice
	wg   *wireguard.Device
}

var _ device = (*processDevice)(nil)

func (d *processDevice) start(s settings, peers []peer) error {
	var c strings.Builder
	fmt.Fprintf(&c, "private_key=%x\nfwmark=%d\nlisten_port=%d\n", s.private[:], s.mark, s.port)
	writePeers(&c, peers, nil)
	if err := d.wg.IpcSet(c.String()); err != nil {
		return fmt.Errorf("configure device %s: %w", d.link.name, err)
	}
	if err := d.link.up(s); err != nil {
		return err
	}
	if err := d.wg.Up(); err != nil {
		return fmt.Errorf("listen on UDP port %d: %w: choose another port for tunnels, or stop what uses it", s.port, err)
	}
	return nil
}

func (d *processDevice) setPeers(set []peer, left []key) error {
	var c strings.Builder
	writePeers(&c, set, left)
	if err := d.wg.IpcSet(c.String()); err != nil {
		return fmt.Errorf("set peers of device %s: %w", d.link.name, err)
	}
	return nil
}

// writePeers writes WireGuard's configuration protocol
// (https://www.wireguard.com/xplatform/).
func writePeers(c *strings.Builder, set []peer, left []key) {
	for _, k := range left {
		fmt.Fprintf(c, "public_key=%x\nremove=true\n", k[:])
	}
	for _, p := range set {
		fmt.Fprintf(c, "public_key=%x\nreplace_allowed_ips=true\nallowed_ip=%s\npersistent_keepalive_interval=%d\n",
			p.public[:], p.allowed, p.keepalive/time.Second)
		if p.endpoint.IsValid() {
			fmt.Fprintf(c, "endpoint=%s\n", p.endpoint)
		}
	}
}

func (d *processDevice) setMTU(mtu int) error {
	if err := d.link.setMTU(mtu); err != nil {
		return err
	}
	d.tun.mtuChanged()
	return nil
}

func (d *processDevice) peers() ([]peerState, error) {
	select {
	case <-d.wg.Wait():
		return nil, errGone
	default:
	}
	text, err := d.wg.IpcGet()
	if err != nil {
		return nil, fmt.Errorf("read device %s: %w", d.link.name, err)
	}
	return parsePeers(text)
}

// parsePeers reads what writePeers' counterpart says.
func parsePeers(text string) ([]peerState, error) {
	var all []peerState
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), "=")
		if name == "public_key" {
			b, err := hex.DecodeString(value)
			if err != nil || len(b) != len(key{}) {
				return nil, fmt.Errorf("peer with the key %q, which is none", value)
			}
			all = append(all, peerState{public: key(b)})
			continue
		}
		if len(all) == 0 {
			continue // about the device
		}
		p := &all[len(all)-1]
		number, err := strconv.ParseUint(value, 10, 63)
		switch {
		case err != nil: // an address, a key
		case name == "last_handshake_time_sec" && number > 0:
			p.handshake = time.Unix(int64(number), 0)
		case name == "last_handshake_time_nsec" && !p.handshake.IsZero():
			p.handshake = p.handshake.Add(time.Duration(number))
		case name == "tx_bytes":
			p.sent = number
		case name == "rx_bytes":
			p.received = number
		}
	}
	return all, lines.Err()
}

func (d *processDevice) close() error {
	d.wg.Close() // and the TUN device, with which the link goes
	return d.link.unrule()
}
