package tunnel

import (
	"encoding/json"
	"net/netip"
	"os"

	"sluice/atomicfile"
	"sluice/uplink/wire"
)

// lease is what a collector has given this gateway, as it is kept in lease.json.
type lease struct {
	Collector key                    `json:"collector"` // its public key
	Port      uint16                 `json:"port"`      // UDP
	Uplinks   map[string]leaseholder `json:"uplinks"`
}

// leaseholder is an uplink in a lease.
type leaseholder struct {
	Key    key          `json:"key"`   // public, that the lease is for
	Local  netip.Prefix `json:"local"` // inner addresses
	Remote netip.Addr   `json:"remote"`
}

func newLease(req wire.TunnelRequest, r wire.TunnelReply) *lease {
	l := &lease{Collector: key(r.Key), Port: r.Port, Uplinks: make(map[string]leaseholder)}
	for i, t := range r.Tunnels {
		l.Uplinks[req.Uplinks[i].Name] = leaseholder{Key: key(req.Uplinks[i].Key), Local: t.Local, Remote: t.Remote}
	}
	return l
}

// readLease reads the file at path.
func readLease(path string) (*lease, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	l := new(lease)
	if err := json.Unmarshal(text, l); err != nil {
		return nil, err
	}
	return l, l.check()
}

// check admits what Ask would have admitted.
func (l *lease) check() error {
	req, reply := wire.TunnelRequest{}, wire.TunnelReply{Key: wire.TunnelKey(l.Collector), Port: l.Port}
	for name, h := range l.Uplinks {
		req.Uplinks = append(req.Uplinks, wire.TunnelUplink{Name: name})
		reply.Tunnels = append(reply.Tunnels, wire.TunnelLease{Local: h.Local, Remote: h.Remote})
	}
	return checkReply(req, reply)
}

func (l *lease) write(path string) error {
	text, err := json.MarshalIndent(l, "", " ")
	if err != nil {
		return err
	}
	return atomicfile.Write(path, append(text, '\n'))
}

// holds tells whether the lease has a tunnel for an uplink with that key.
func (l *lease) holds(name string, public key) bool {
	return l != nil && l.Uplinks[name].Key == public
}
