package config

import (
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
)

// Collector is the configuration of a collector.
type Collector struct {
	Version   int       `toml:"version"`
	Collector FarEnd    `toml:"collector"`
	JetStream JetStream `toml:"jetstream"`
	// MQTT, Files and Tunnel are nil if their section is absent: then they are off.
	MQTT   *Republish `toml:"mqtt"`
	Files  *Files     `toml:"files"`
	Tunnel *Tunnel    `toml:"tunnel"`
	Log    Log        `toml:"log"`
}

// FarEnd is the collector itself.
type FarEnd struct {
	DataDir       string   `toml:"data_dir"`
	Listen        []string `toml:"listen"`
	CA            string   `toml:"ca"`
	Cert          string   `toml:"cert"`
	Key           string   `toml:"key"`
	MetricsListen string   `toml:"metrics_listen"`
}

// JetStream is the output into a NATS stream: of the server inside the
// collector, or of one elsewhere.
type JetStream struct {
	Enabled      bool     `toml:"enabled"`
	Embedded     bool     `toml:"embedded"`
	Listen       string   `toml:"listen"`
	Dir          string   `toml:"dir"`
	URL          string   `toml:"url"`
	Credentials  string   `toml:"credentials"`
	User         string   `toml:"user"`
	Password     string   `toml:"password,secret"`
	PasswordFile string   `toml:"password_file"`
	CA           string   `toml:"ca"`
	Stream       string   `toml:"stream"`
	Replicas     int      `toml:"replicas"`
	MaxBytes     Size     `toml:"max_bytes"` // 0 is without limit
	MaxAge       Duration `toml:"max_age"`   // 0 is without limit
}

// Republish is the output to an MQTT broker.
type Republish struct {
	URL          string `toml:"url"`
	Username     string `toml:"username"`
	Password     string `toml:"password,secret"`
	PasswordFile string `toml:"password_file"`
	CA           string `toml:"ca"`
	TopicPrefix  string `toml:"topic_prefix"`
}

func (r *Republish) setDefaults() { r.TopicPrefix = "sluice" }

// Files is the output to files of JSON lines.
type Files struct {
	Dir         string `toml:"dir"`
	RotateBytes Size   `toml:"rotate_bytes"`
	Keep        int    `toml:"keep"`
}

func (f *Files) setDefaults() { f.RotateBytes, f.Keep = 64e6, 16 }

// Tunnel is the collector's end of the gateways' tunnels.
type Tunnel struct {
	Port    int    `toml:"port"`    // UDP, of WireGuard
	Network string `toml:"network"` // the inner addresses are taken from it
}

func (t *Tunnel) setDefaults() { t.Port, t.Network = 51820, "10.213.0.0/16" }

// DefaultCollector is the configuration of a file that holds only its version
// and the collector's keys.
func DefaultCollector() Collector {
	return Collector{
		Collector: FarEnd{
			DataDir:       "/var/lib/sluice-collector",
			Listen:        []string{"0.0.0.0:7600"},
			MetricsListen: "127.0.0.1:7601",
		},
		JetStream: JetStream{
			Enabled:  true,
			Embedded: true,
			Listen:   "127.0.0.1:4222",
			Stream:   "SLUICE",
			Replicas: 1,
		},
		Log: Log{Level: "info"},
	}
}

// LoadCollector reads, completes and validates the configuration in a file. The
// error is either Faults or why the file could not be read.
func LoadCollector(path string) (*Collector, error) {
	data, dir, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return ParseCollector(data, dir)
}

// ParseCollector is LoadCollector for the contents of a file; relative paths in
// it start at dir. Its error is Faults.
func ParseCollector(data []byte, dir string) (*Collector, error) {
	c := DefaultCollector()
	if fs := load(data, &c, func(ch *checker) {
		c.complete(ch, dir)
		c.check(ch)
	}); len(fs) > 0 {
		return nil, fs
	}
	return &c, nil
}

// complete fills in what follows from other keys and from files with secrets.
func (c *Collector) complete(ch *checker, dir string) {
	js := &c.JetStream
	absolute(dir, &c.Collector.DataDir, &c.Collector.CA, &c.Collector.Cert, &c.Collector.Key,
		&js.Dir, &js.Credentials, &js.PasswordFile, &js.CA)
	if js.Dir == "" {
		js.Dir = filepath.Join(c.Collector.DataDir, "jetstream")
	}
	ch.secret("jetstream", "password", &js.Password, js.PasswordFile)
	if m := c.MQTT; m != nil {
		absolute(dir, &m.PasswordFile, &m.CA)
		ch.secret("mqtt", "password", &m.Password, m.PasswordFile)
	}
	if f := c.Files; f != nil {
		absolute(dir, &f.Dir)
		if f.Dir == "" {
			f.Dir = filepath.Join(c.Collector.DataDir, "files")
		}
	}
}

// Validate reports everything that is wrong with c, by field; lines are not
// known here. It looks at the files that c names.
func (c *Collector) Validate() Faults {
	ch := &checker{}
	c.check(ch)
	return ch.faults
}

func (c *Collector) check(ch *checker) {
	ch.version(c.Version)
	c.Collector.check(ch)
	c.JetStream.check(ch)
	if !c.JetStream.Enabled && c.MQTT == nil && c.Files == nil {
		ch.fault("jetstream.enabled", "false", "leaves the collector without an output", "enable it, or add [mqtt] or [files]")
	}
	if m := c.MQTT; m != nil {
		m.check(ch)
	}
	if f := c.Files; f != nil {
		ch.directory("files.dir", f.Dir)
		between(ch, "files.rotate_bytes", f.RotateBytes, 1e6, 1e12)
		if f.Keep < 2 || f.Keep > 100000 {
			ch.fault("files.keep", strconv.Itoa(f.Keep), "is out of range", "choose between 2 and 100000 files")
		}
	}
	if t := c.Tunnel; t != nil {
		t.check(ch)
	}
	ch.choice("log.level", c.Log.Level, "debug", "info", "warn", "error")
}

func (t *Tunnel) check(c *checker) {
	if t.Port < 1 || t.Port > 65535 {
		c.fault("tunnel.port", strconv.Itoa(t.Port), "is not a port", "choose between 1 and 65535; 51820 is usual")
	}
	const remedy = `write a private IPv4 network that no gateway and no uplink uses, such as "10.213.0.0/16"`
	if n, err := netip.ParsePrefix(t.Network); err != nil || !n.Addr().Is4() || n.Bits() < 8 || n.Bits() > 24 || n != n.Masked() {
		c.fault("tunnel.network", shown(t.Network), "is not a network of 8 to 24 bits", remedy)
	}
}

func (f *FarEnd) check(c *checker) {
	c.directory("collector.data_dir", f.DataDir)
	if len(f.Listen) == 0 {
		c.fault("collector.listen", "[]", "leaves the collector without a listener", `write listen = ["0.0.0.0:7600"]`)
	}
	for i, a := range f.Listen {
		c.listen(index("collector.listen", i+1), a)
	}
	if f.MetricsListen != "" {
		c.listen("collector.metrics_listen", f.MetricsListen)
	}
	const remedy = `give the file that "sluice-collector keys" made`
	if c.required("collector.ca", f.CA, remedy) {
		c.authorities("collector.ca", f.CA)
	}
	cert, key := c.required("collector.cert", f.Cert, remedy), c.required("collector.key", f.Key, remedy)
	if cert && key {
		c.keyPair("collector.cert", f.Cert, "collector.key", f.Key)
	}
}

func (j *JetStream) check(c *checker) {
	if !j.Enabled {
		return
	}
	if j.Embedded {
		if j.URL != "" {
			c.fault("jetstream.url", shown(j.URL), "names a server elsewhere, and embedded is true", "write embedded = false, or remove the URL")
		}
		for _, k := range []struct{ key, value string }{{"credentials", j.Credentials}, {"ca", j.CA}} {
			if k.value != "" {
				c.fault("jetstream."+k.key, shown(k.value), "is for a server elsewhere, and embedded is true", "write embedded = false, or remove it")
			}
		}
		c.directory("jetstream.dir", j.Dir)
		if j.Listen != "" {
			if loopback := c.listen("jetstream.listen", j.Listen); !loopback && j.User == "" {
				c.fault("jetstream.listen", shown(j.Listen), "can be reached by other machines, and clients need no password", "give user and password")
			}
		}
		if j.Replicas != 1 {
			c.fault("jetstream.replicas", strconv.Itoa(j.Replicas), "needs a cluster, and embedded is true", "write replicas = 1, or name a cluster with url")
		}
	} else {
		j.checkURL(c)
		if j.Credentials != "" {
			c.readable("jetstream.credentials", j.Credentials)
		}
		if j.Credentials != "" && j.User != "" {
			c.fault("jetstream.user", shown(j.User), "is given together with credentials", "keep one of them")
		}
		c.authorities("jetstream.ca", j.CA)
		if j.Replicas < 1 || j.Replicas > 5 {
			c.fault("jetstream.replicas", strconv.Itoa(j.Replicas), "is out of range", "choose between 1 and 5; 3 survive the loss of one server")
		}
	}
	if (j.User == "") != (j.Password == "") {
		c.fault("jetstream.user", "", "needs a password, and a password needs a user", "give both or none")
	}
	c.identifier("jetstream.stream", j.Stream)
	if j.MaxBytes != 0 {
		between(c, "jetstream.max_bytes", j.MaxBytes, 1e6, 1e15)
	}
	if j.MaxAge != 0 {
		between(c, "jetstream.max_age", j.MaxAge, Duration(60e9), Duration(87600*3600e9))
	}
}

// checkURL checks one or several server URLs, separated by commas.
func (j *JetStream) checkURL(c *checker) {
	const remedy = `write "nats://host:4222" or "tls://host:4222", several with commas between`
	if !c.required("jetstream.url", j.URL, remedy) {
		return
	}
	for s := range strings.SplitSeq(j.URL, ",") {
		u, err := url.Parse(strings.TrimSpace(s))
		switch {
		case err != nil || u.Hostname() == "":
			c.fault("jetstream.url", shown(s), "is not the address of a server", remedy)
		case u.Scheme != "nats" && u.Scheme != "tls":
			c.fault("jetstream.url", shown(s), fmt.Sprintf("has the unknown scheme %q", u.Scheme), remedy)
		case u.User != nil:
			c.fault("jetstream.url", shown(u.Redacted()), "holds credentials", "use user and password_file, or credentials")
		}
	}
}

func (r *Republish) check(c *checker) {
	secure := c.brokerURL("mqtt.url", r.URL)
	switch {
	case r.CA != "" && r.URL != "" && !secure:
		c.fault("mqtt.ca", shown(r.CA), "is of no use without TLS", `write the URL with "tls://", or remove this`)
	default:
		c.authorities("mqtt.ca", r.CA)
	}
	if r.Username == "" && r.Password != "" {
		c.fault("mqtt.username", "", "is missing", "a password needs its user name")
	}
	if p := r.TopicPrefix; p == "" || strings.ContainsAny(p, "+#") || strings.Trim(p, "/") != p {
		c.fault("mqtt.topic_prefix", shown(p), "is not a topic", `write it without wildcards and without / at its ends, such as "sluice"`)
	}
}
