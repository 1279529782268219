package tunnel

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"sluice/uplink/wire"
)

// registry is which gateway has which numbers and keys. Its members are never
// changed, only replaced, so that a shallow copy is a copy.
type registry struct {
	gateways map[string]member
	numbers  map[int]bool   // those taken
	owners   map[key]string // gateways by the keys of their uplinks
}

// member is a gateway.
type member struct {
	Number  int    `json:"number"`
	Uplinks []seat `json:"uplinks"` // the first is the one that came first
}

// seat is an uplink of a gateway.
type seat struct {
	Name   string `json:"name"`
	Number int    `json:"number"` // 0 to 3
	Key    key    `json:"key"`    // public
}

// registryFile is how a registry is kept.
type registryFile struct {
	Version  int               `json:"version"`
	Gateways map[string]member `json:"gateways"`
}

const registryVersion = 1

func newRegistry() *registry {
	return &registry{gateways: make(map[string]member), numbers: make(map[int]bool), owners: make(map[key]string)}
}

func (r *registry) clone() *registry {
	return &registry{gateways: maps.Clone(r.gateways), numbers: maps.Clone(r.numbers), owners: maps.Clone(r.owners)}
}

// readRegistry reads the file at path; if there is none, nobody has a number.
func readRegistry(path string, p plan) (*registry, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return newRegistry(), nil
	}
	if err != nil {
		return nil, err
	}
	r, err := decodeRegistry(text, p)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w: restore it, or remove it and let every gateway ask anew", path, err)
	}
	return r, nil
}

// decodeRegistry admits nothing that lease would not have made.
func decodeRegistry(text []byte, p plan) (*registry, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	var f registryFile
	if err := dec.Decode(&f); err != nil {
		return nil, err
	}
	if f.Version != registryVersion {
		return nil, fmt.Errorf("version %d, this program knows %d", f.Version, registryVersion)
	}
	r := newRegistry()
	for name, m := range f.Gateways {
		switch {
		case name == "":
			return nil, errors.New("a gateway without a name")
		case m.Number < 0 || m.Number >= p.gateways():
			return nil, fmt.Errorf("gateway %s has number %d: network %s has room for %d gateways", name, m.Number, p.network, p.gateways())
		case r.numbers[m.Number]:
			return nil, fmt.Errorf("gateway %s: another one has number %d as well", name, m.Number)
		}
		if err := r.checkSeats(m.Uplinks); err != nil {
			return nil, fmt.Errorf("gateway %s: %w", name, err)
		}
		r.put(name, m)
	}
	return r, nil
}

func (r *registry) checkSeats(seats []seat) error {
	var names []string
	var taken [wire.MaxTunnels]bool
	var keys []key
	for _, s := range seats {
		if err := checkName(s.Name); err != nil {
			return err
		}
		switch {
		case slices.Contains(names, s.Name):
			return fmt.Errorf("uplink %s twice", s.Name)
		case s.Number < 0 || s.Number >= len(taken) || taken[s.Number]:
			return fmt.Errorf("uplink %s: number %d is taken or out of range", s.Name, s.Number)
		case s.Key == key{}:
			return fmt.Errorf("uplink %s has no key", s.Name)
		case r.owners[s.Key] != "" || slices.Contains(keys, s.Key):
			return fmt.Errorf("uplink %s: its key is another's as well", s.Name)
		}
		names, keys = append(names, s.Name), append(keys, s.Key)
		taken[s.Number] = true
	}
	return nil
}

// encode is the file's content. Maps are sorted, so that equal registries are
// equal files.
func (r *registry) encode() ([]byte, error) {
	text, err := json.MarshalIndent(registryFile{Version: registryVersion, Gateways: r.gateways}, "", " ")
	return append(text, '\n'), err
}

// put replaces a gateway.
func (r *registry) put(gateway string, m member) {
	for _, s := range r.gateways[gateway].Uplinks {
		delete(r.owners, s.Key)
	}
	for _, s := range m.Uplinks {
		r.owners[s.Key] = gateway
	}
	r.gateways[gateway] = m
	r.numbers[m.Number] = true
}

// lease finds or makes the seats of a request, in its order. An uplink that was
// there keeps its number; where all four are taken, a new one gets that of the
// oldest one that the request does not name. gone are the keys that the gateway
// has no longer. After an error nothing is changed.
func (r *registry) lease(gateway string, uplinks []wire.TunnelUplink, p plan) (seats []seat, gone []key, changed bool, err error) {
	old, known := r.gateways[gateway]
	m := member{Number: old.Number, Uplinks: slices.Clone(old.Uplinks)}
	if !known {
		if m.Number, err = r.free(p); err != nil {
			return nil, nil, false, err
		}
	}
	var keys []key
	for _, u := range uplinks {
		if err := r.admit(gateway, u); err != nil {
			return nil, nil, false, err
		}
		if slices.Contains(keys, key(u.Key)) || slices.ContainsFunc(seats, func(s seat) bool { return s.Name == u.Name }) {
			return nil, nil, false, fmt.Errorf("uplink %s: its name or key is there twice", u.Name)
		}
		keys = append(keys, key(u.Key))
		// An interface that was renamed with its key is not the old one any more.
		m.Uplinks = slices.DeleteFunc(m.Uplinks, func(s seat) bool { return s.Key == key(u.Key) && s.Name != u.Name })
		seats = append(seats, m.seat(u, uplinks))
	}
	for _, s := range old.Uplinks {
		if !slices.ContainsFunc(m.Uplinks, func(n seat) bool { return n.Key == s.Key }) {
			gone = append(gone, s.Key)
		}
	}
	if changed = !known || !slices.Equal(old.Uplinks, m.Uplinks); changed {
		r.put(gateway, m)
	}
	return seats, gone, changed, nil
}

// admit refuses keys that would take another gateway's packets.
func (r *registry) admit(gateway string, u wire.TunnelUplink) error {
	if err := checkName(u.Name); err != nil {
		return err
	}
	if u.Key == (wire.TunnelKey{}) {
		return fmt.Errorf("uplink %s has no key", u.Name)
	}
	if owner := r.owners[key(u.Key)]; owner != "" && owner != gateway {
		return fmt.Errorf("uplink %s: gateway %s has this key already: remove the copied tunnel folder and new keys are made", u.Name, owner)
	}
	return nil
}

// seat gives u its number and key.
func (m *member) seat(u wire.TunnelUplink, all []wire.TunnelUplink) seat {
	i := slices.IndexFunc(m.Uplinks, func(s seat) bool { return s.Name == u.Name })
	if i >= 0 {
		m.Uplinks[i].Key = key(u.Key)
		return m.Uplinks[i]
	}
	if len(m.Uplinks) == wire.MaxTunnels {
		oldest := slices.IndexFunc(m.Uplinks, func(s seat) bool {
			return !slices.ContainsFunc(all, func(u wire.TunnelUplink) bool { return u.Name == s.Name })
		})
		m.Uplinks = slices.Delete(m.Uplinks, oldest, oldest+1)
	}
	var taken [wire.MaxTunnels]bool
	for _, s := range m.Uplinks {
		taken[s.Number] = true
	}
	s := seat{Name: u.Name, Number: slices.Index(taken[:], false), Key: key(u.Key)}
	m.Uplinks = append(m.Uplinks, s)
	return s
}

// free is the lowest number that nobody has.
func (r *registry) free(p plan) (int, error) {
	for n := range p.gateways() {
		if !r.numbers[n] {
			return n, nil
		}
	}
	return 0, fmt.Errorf("%s with %d gateways: %w: choose a larger one, or remove gateways that are no more from the collector's tunnel.json", p.network, p.gateways(), ErrFull)
}
