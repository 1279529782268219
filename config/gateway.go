package config

import (
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Gateway is the configuration of a gateway.
type Gateway struct {
	Version     int         `toml:"version"`
	Gateway     Identity    `toml:"gateway"`
	Broker      Broker      `toml:"broker"`
	MQTT        []MQTT      `toml:"mqtt"`
	Push        Push        `toml:"push"`
	Zigbee2MQTT Zigbee2MQTT `toml:"zigbee2mqtt"`
	Rules       []Rule      `toml:"rule"`
	Alarms      []Alarm     `toml:"alarm"`
	Store       Store       `toml:"store"`
	Uplink      Uplink      `toml:"uplink"`
	Metrics     Metrics     `toml:"metrics"`
	Log         Log         `toml:"log"`
}

// Identity says who the gateway is and where it keeps its data.
type Identity struct {
	// ID names the gateway to the collector; its certificate bears it.
	ID           string `toml:"id"`
	DataDir      string `toml:"data_dir"`
	StatusSocket string `toml:"status_socket"`
}

// Broker is the MQTT broker inside the gateway.
type Broker struct {
	Enabled   bool     `toml:"enabled"`
	Listen    []string `toml:"listen"`
	TLSListen []string `toml:"tls_listen"`
	TLSCert   string   `toml:"tls_cert"`
	TLSKey    string   `toml:"tls_key"`
	Anonymous bool     `toml:"anonymous"`
	// AnonymousNetwork allows clients without a name on listeners that other
	// machines can reach.
	AnonymousNetwork bool   `toml:"anonymous_network"`
	AnonymousRights  Rights `toml:"anonymous_rights"`
	MaxPacket        Size   `toml:"max_packet"`
	Users            []User `toml:"user"`
}

// Rights are the MQTT topic filters that a client may use.
type Rights struct {
	Publish   []string `toml:"publish"`
	Subscribe []string `toml:"subscribe"`
}

// User is a client of the broker. Exactly one of Password and PasswordHash is
// set after loading; a PasswordFile has been read into Password.
type User struct {
	Name         string   `toml:"name"`
	Password     string   `toml:"password,secret"`
	PasswordHash string   `toml:"password_hash,secret"`
	PasswordFile string   `toml:"password_file"`
	Publish      []string `toml:"publish"`
	Subscribe    []string `toml:"subscribe"`
}

func (u *User) setDefaults() { u.Publish, u.Subscribe = []string{"#"}, []string{"#"} }

// MQTT is a broker elsewhere that the gateway subscribes to.
type MQTT struct {
	Name         string   `toml:"name"`
	URL          string   `toml:"url"`
	ClientID     string   `toml:"client_id"`
	Username     string   `toml:"username"`
	Password     string   `toml:"password,secret"`
	PasswordFile string   `toml:"password_file"`
	CA           string   `toml:"ca"`
	Cert         string   `toml:"cert"`
	Key          string   `toml:"key"`
	Topics       []string `toml:"topics"`
	QoS          int      `toml:"qos"`
}

func (m *MQTT) setDefaults() { m.Topics, m.QoS = []string{"zigbee2mqtt/#"}, 1 }

// Push is the HTTP listener for sink nodes.
type Push struct {
	Listen  string `toml:"listen"`
	TLSCert string `toml:"tls_cert"`
	TLSKey  string `toml:"tls_key"`
	MaxBody Size   `toml:"max_body"`
	Nodes   []Node `toml:"node"`
}

// Node is a sink node that may push.
type Node struct {
	Name      string `toml:"name"`
	Token     string `toml:"token,secret"`
	TokenFile string `toml:"token_file"`
}

// Zigbee2MQTT says under which topics Zigbee2MQTT publishes.
type Zigbee2MQTT struct {
	BaseTopics []string `toml:"base_topics"`
}

// Rule says what the messages of some topics mean; see ingest.Rule.
type Rule struct {
	Topic    string              `toml:"topic"`
	Format   string              `toml:"format"`
	Device   string              `toml:"device"`
	Name     string              `toml:"name"`
	Unit     string              `toml:"unit"`
	Time     string              `toml:"time"`
	TimeUnit string              `toml:"time_unit"`
	Fields   map[string]Field    `toml:"fields"`
	Invalid  map[string][]Scalar `toml:"invalid"`
}

func (r *Rule) setDefaults() { r.Format = "auto" }

// Field gives a field of a payload another name or a unit.
type Field struct {
	Name string `toml:"name"`
	Unit string `toml:"unit"`
}

// Alarm says which readings are urgent; see ingest.AlarmRule.
type Alarm struct {
	Device string `toml:"device"`
	Name   string `toml:"name"`
	Above  Scalar `toml:"above"`
	Below  Scalar `toml:"below"`
	Equals Scalar `toml:"equals"`
}

// Store is the queue on disk.
type Store struct {
	Quota          Size     `toml:"quota"`
	Policy         string   `toml:"policy"`
	CommitInterval Duration `toml:"commit_interval"`
	CommitBytes    Size     `toml:"commit_bytes"`
}

// Uplink is the way to the collector.
type Uplink struct {
	Collectors    []string `toml:"collectors"`
	ServerName    string   `toml:"server_name"`
	CA            string   `toml:"ca"`
	Cert          string   `toml:"cert"`
	Key           string   `toml:"key"`
	Carrier       string   `toml:"carrier"`
	Underlay      string   `toml:"underlay"`
	Profile       string   `toml:"profile"`
	FlushInterval Duration `toml:"flush_interval"`
	Keepalive     Duration `toml:"keepalive"`
	AckTimeout    Duration `toml:"ack_timeout"`
	Paths         []Path   `toml:"path"`
}

// Path is a kind of interface that leads to the collector.
type Path struct {
	Interface string `toml:"interface"` // a pattern: "wlan*"
	Metered   bool   `toml:"metered"`
	// Collector is the collector's address by this path, where that is another
	// one; with bare links every path of an SCTP association needs its own.
	Collector string `toml:"collector"`
}

// Metrics is the optional listener for Prometheus.
type Metrics struct {
	Listen string `toml:"listen"`
}

// Log says how much is logged.
type Log struct {
	Level string `toml:"level"`
}

// DefaultGateway is the configuration of a file that holds only its version.
func DefaultGateway() Gateway {
	return Gateway{
		Gateway: Identity{ID: hostID(), DataDir: "/var/lib/sluice"},
		Broker: Broker{
			Enabled:         true,
			Listen:          []string{"127.0.0.1:1883"},
			Anonymous:       true,
			AnonymousRights: Rights{Publish: []string{"#"}, Subscribe: []string{"#"}},
			MaxPacket:       1 << 20,
		},
		Push:        Push{MaxBody: 4e6},
		Zigbee2MQTT: Zigbee2MQTT{BaseTopics: []string{"zigbee2mqtt"}},
		Store: Store{
			Quota:          256e6,
			Policy:         "drop-oldest",
			CommitInterval: Duration(200 * time.Millisecond),
			CommitBytes:    64e3,
		},
		Uplink: Uplink{
			Carrier:       "auto",
			Underlay:      "tunnel",
			Profile:       "default",
			FlushInterval: Duration(200 * time.Millisecond),
			Keepalive:     Duration(90 * time.Second),
			AckTimeout:    Duration(15 * time.Second),
		},
		Log: Log{Level: "info"},
	}
}

// hostID is the host's name without its domain.
func hostID() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	name, _, _ = strings.Cut(name, ".")
	return name
}

// LoadGateway reads, completes and validates the configuration in a file. check
// adds faults that this package does not know, by field; it may be nil. The error
// is either Faults or why the file could not be read.
func LoadGateway(path string, check func(*Gateway) Faults) (*Gateway, error) {
	data, dir, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return ParseGateway(data, dir, check)
}

// ParseGateway is LoadGateway for the contents of a file; relative paths in it
// start at dir. Its error is Faults.
func ParseGateway(data []byte, dir string, check func(*Gateway) Faults) (*Gateway, error) {
	g := DefaultGateway()
	if fs := load(data, &g, func(c *checker) {
		g.complete(c, dir)
		g.check(c)
		if check != nil {
			c.add(check(&g))
		}
	}); len(fs) > 0 {
		return nil, fs
	}
	return &g, nil
}

// StatusSocket returns the path of the status socket that the configuration in a
// file leads to, as far as it can be read: a gateway goes on with what it had
// when its file gets a fault.
func StatusSocket(path string) (string, error) {
	data, dir, err := readFile(path)
	if err != nil {
		return "", err
	}
	g := DefaultGateway()
	load(data, &g, func(c *checker) { g.complete(c, dir) })
	return g.Gateway.StatusSocket, nil
}

// complete fills in what follows from other keys and from files with secrets.
func (g *Gateway) complete(c *checker, dir string) {
	paths := []*string{&g.Gateway.DataDir, &g.Gateway.StatusSocket,
		&g.Broker.TLSCert, &g.Broker.TLSKey, &g.Push.TLSCert, &g.Push.TLSKey,
		&g.Uplink.CA, &g.Uplink.Cert, &g.Uplink.Key}
	for i := range g.Broker.Users {
		paths = append(paths, &g.Broker.Users[i].PasswordFile)
	}
	for i := range g.MQTT {
		m := &g.MQTT[i]
		paths = append(paths, &m.PasswordFile, &m.CA, &m.Cert, &m.Key)
		if m.ClientID == "" {
			m.ClientID = "sluice-" + g.Gateway.ID + "-" + m.Name
		}
	}
	for i := range g.Push.Nodes {
		paths = append(paths, &g.Push.Nodes[i].TokenFile)
	}
	absolute(dir, paths...)
	for i := range g.Broker.Users {
		c.secret(index("broker.user", i+1), "password", &g.Broker.Users[i].Password, g.Broker.Users[i].PasswordFile)
	}
	for i := range g.MQTT {
		c.secret(index("mqtt", i+1), "password", &g.MQTT[i].Password, g.MQTT[i].PasswordFile)
	}
	for i := range g.Push.Nodes {
		c.secret(index("push.node", i+1), "token", &g.Push.Nodes[i].Token, g.Push.Nodes[i].TokenFile)
	}
	if g.Gateway.StatusSocket == "" {
		g.Gateway.StatusSocket = filepath.Join(g.Gateway.DataDir, "sluice.sock")
	}
}
