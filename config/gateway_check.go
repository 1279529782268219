package config

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Validate reports everything that is wrong with g, by field; lines are not
// known here. It looks at the files that g names.
func (g *Gateway) Validate() Faults {
	c := &checker{}
	g.check(c)
	return c.faults
}

func (g *Gateway) check(c *checker) {
	c.version(g.Version)
	g.Gateway.check(c)
	g.Broker.check(c)
	g.Push.check(c)
	if g.Metrics.Listen != "" {
		c.listen("metrics.listen", g.Metrics.Listen)
	}
	names := map[string]bool{}
	for i := range g.MQTT {
		g.MQTT[i].check(c, index("mqtt", i+1), names)
	}
	for i, t := range g.Zigbee2MQTT.BaseTopics {
		field := index("zigbee2mqtt.base_topics", i+1)
		if strings.ContainsAny(t, "+#") || strings.Trim(t, "/") != t || filterProblem(t) != "" {
			c.fault(field, shown(t), "is not a base topic", `write it as in Zigbee2MQTT's mqtt.base_topic, such as "zigbee2mqtt"`)
		}
	}
	for i := range g.Rules {
		g.Rules[i].check(c, index("rule", i+1))
	}
	for i := range g.Alarms {
		g.Alarms[i].check(c, index("alarm", i+1))
	}
	g.Store.check(c)
	g.Uplink.check(c, g.Gateway.ID)
	c.choice("log.level", g.Log.Level, "debug", "info", "warn", "error")
}

func (id *Identity) check(c *checker) {
	c.identifier("gateway.id", id.ID)
	c.directory("gateway.data_dir", id.DataDir)
	// The kernel's limit for a socket's path is 108 bytes, one of them zero.
	if len(id.StatusSocket) > 107 {
		c.fault("gateway.status_socket", shown(id.StatusSocket), "is too long for a socket's path", "use at most 107 letters")
	}
}

func (b *Broker) check(c *checker) {
	pair := func() { c.keyPair("broker.tls_cert", b.TLSCert, "broker.tls_key", b.TLSKey) }
	if !b.Enabled {
		pair()
		return
	}
	if len(b.Listen)+len(b.TLSListen) == 0 {
		c.fault("broker.listen", "[]", "leaves the broker without a listener", "give an address, or write enabled = false")
	}
	network := ""
	for _, list := range []struct {
		key       string
		addresses []string
	}{{"broker.listen", b.Listen}, {"broker.tls_listen", b.TLSListen}} {
		for i, a := range list.addresses {
			if field := index(list.key, i+1); !c.listen(field, a) && network == "" {
				network = field
			}
		}
	}
	switch {
	case len(b.TLSListen) > 0 && b.TLSCert == "" && b.TLSKey == "":
		c.fault("broker.tls_listen", "", "needs a certificate", "give tls_cert and tls_key")
	case len(b.TLSListen) == 0 && (b.TLSCert != "" || b.TLSKey != ""):
		c.fault("broker.tls_cert", shown(b.TLSCert), "is given, but nothing listens with TLS", "add tls_listen, or remove the certificate")
	default:
		pair()
	}
	if b.Anonymous && network != "" && !b.AnonymousNetwork {
		c.fault(network, "", "can be reached by other machines, and clients need no password",
			"write anonymous = false and add [[broker.user]], or allow it with anonymous_network = true")
	}
	if b.Anonymous {
		c.filters("broker.anonymous_rights.publish", b.AnonymousRights.Publish)
		c.filters("broker.anonymous_rights.subscribe", b.AnonymousRights.Subscribe)
	} else if len(b.Users) == 0 {
		c.fault("broker.anonymous", "false", "lets nobody in, for there is no user", "add [[broker.user]], or write anonymous = true")
	}
	between(c, "broker.max_packet", b.MaxPacket, 1e3, 256e6)
	names := map[string]bool{}
	for i := range b.Users {
		u, field := &b.Users[i], index("broker.user", i+1)
		c.required(field+".name", u.Name, "give the name that the client logs in with")
		c.unique(field+".name", u.Name, names)
		switch {
		case u.Password == "" && u.PasswordHash == "" && u.PasswordFile == "":
			c.fault(field+".password", "", "is missing", "give password, password_file or password_hash")
		case u.PasswordHash != "" && (u.Password != "" || u.PasswordFile != ""):
			c.fault(field+".password_hash", "", "is given together with a password", "keep one of them")
		case u.PasswordHash != "" && (!strings.HasPrefix(u.PasswordHash, "pbkdf2-sha256$") || strings.Count(u.PasswordHash, "$") != 3):
			c.fault(field+".password_hash", "", "is not a password hash", `give what "sluice hash-password" prints`)
		}
		c.filters(field+".publish", u.Publish)
		c.filters(field+".subscribe", u.Subscribe)
	}
}

func (m *MQTT) check(c *checker, field string, names map[string]bool) {
	c.identifier(field+".name", m.Name)
	c.unique(field+".name", m.Name, names)
	secure := c.brokerURL(field+".url", m.URL)
	for _, file := range []struct{ key, path string }{{"ca", m.CA}, {"cert", m.Cert}, {"key", m.Key}} {
		if file.path != "" && m.URL != "" && !secure {
			c.fault(field+"."+file.key, shown(file.path), "is of no use without TLS", `write the URL with "tls://", or remove this`)
		}
	}
	if secure {
		c.authorities(field+".ca", m.CA)
		c.keyPair(field+".cert", m.Cert, field+".key", m.Key)
	}
	if m.Username == "" && m.Password != "" {
		c.fault(field+".username", "", "is missing", "a password needs its user name")
	}
	if len(m.Topics) == 0 {
		c.fault(field+".topics", "[]", "subscribes to nothing", `give at least one topic, such as "zigbee2mqtt/#"`)
	}
	c.filters(field+".topics", m.Topics)
	if m.QoS < 0 || m.QoS > 2 {
		c.fault(field+".qos", strconv.Itoa(m.QoS), "is out of range", "choose 0, 1 or 2; only 1 and 2 lose nothing")
	}
}

func (p *Push) check(c *checker) {
	c.keyPair("push.tls_cert", p.TLSCert, "push.tls_key", p.TLSKey)
	between(c, "push.max_body", p.MaxBody, 1e3, 64e6)
	names, tokens := map[string]bool{}, map[string]bool{}
	for i, n := range p.Nodes {
		field := index("push.node", i+1)
		c.identifier(field+".name", n.Name)
		c.unique(field+".name", n.Name, names)
		switch {
		case n.Token == "" && n.TokenFile == "":
			c.fault(field+".token", "", "is missing", "give token or token_file")
		case n.Token != "" && len(n.Token) < 16:
			c.fault(field+".token", "", "is too short to be a secret", `use at least 16 letters, such as what "openssl rand -hex 16" prints`)
		case tokens[n.Token]:
			c.fault(field+".token", "", "is another node's token", "give each node its own")
		}
		tokens[n.Token] = true
	}
	if p.Listen == "" {
		if len(p.Nodes) > 0 {
			c.fault("push.listen", "", "is missing", `nodes cannot push without a listener: write listen = "0.0.0.0:8080"`)
		}
		return
	}
	if loopback := c.listen("push.listen", p.Listen); !loopback && len(p.Nodes) == 0 {
		c.fault("push.listen", shown(p.Listen), "can be reached by other machines, and pushing needs no token",
			"add a [[push.node]] with a token for each sink node")
	}
}

func (r *Rule) check(c *checker, field string) {
	if c.required(field+".topic", r.Topic, `give the topic it is for, such as "weather/+/outside"`) {
		c.filter(field+".topic", r.Topic)
	}
	c.choice(field+".format", r.Format, "auto", "json", "scalar", "zigbee2mqtt", "tasmota", "senml", "raw", "ignore")
	if r.TimeUnit != "" {
		c.choice(field+".time_unit", r.TimeUnit, "iso", "s", "ms", "us", "ns")
	}
	for name, values := range r.Invalid {
		for i, v := range values {
			if !v.decimal() {
				c.fault(index(field+".invalid."+name, i+1), v.shown(), "is not a decimal number", "write the number as the device sends it, without quotes, such as -32768")
			}
		}
	}
}

func (a *Alarm) check(c *checker, field string) {
	if *a == (Alarm{}) {
		c.fault(field, "", "makes every reading an alarm", "give device, name, above, below or equals")
	}
	for _, limit := range []struct {
		key   string
		value Scalar
	}{{"above", a.Above}, {"below", a.Below}} {
		if limit.value.Kind != ScalarAbsent && !limit.value.decimal() {
			c.fault(field+"."+limit.key, limit.value.shown(), "is not a decimal number", "write digits without quotes, such as 60 or 4.5")
		}
	}
	if a.Above.decimal() && a.Below.decimal() && a.Above.less(a.Below) {
		c.fault(field, "", fmt.Sprintf("is raised by every number: above %s or below %s", a.Above.Text, a.Below.Text),
			"above is the upper limit and below the lower one: exchange them")
	}
}

func (s *Store) check(c *checker) {
	// A store is mapped into memory whole, and addresses of 32 bits leave room
	// for no more.
	largest := Size(1e12)
	if strconv.IntSize == 32 {
		largest = 768 << 20
	}
	between(c, "store.quota", s.Quota, 1<<20, largest)
	c.choice("store.policy", s.Policy, "drop-oldest", "reject")
	between(c, "store.commit_interval", s.CommitInterval, Duration(time.Millisecond), Duration(10*time.Second))
	between(c, "store.commit_bytes", s.CommitBytes, 1e3, 16e6)
}

// maxPaths is how many uplinks a gateway can have.
const maxPaths = 4

func (p *Path) check(c *checker, field string, patterns map[string]bool) {
	const remedy = `name it as "ip link" shows it, with * for any letters, such as "wlan*"`
	if c.required(field+".interface", p.Interface, remedy) {
		if _, err := path.Match(p.Interface, ""); err != nil || len(p.Interface) > 15 || strings.ContainsAny(p.Interface, "/ ") {
			c.fault(field+".interface", shown(p.Interface), "is not the name of an interface", remedy)
		}
	}
	c.unique(field+".interface", p.Interface, patterns)
	if p.Collector != "" {
		c.remote(field+".collector", p.Collector)
	}
}

func (u *Uplink) check(c *checker, id string) {
	for i, a := range u.Collectors {
		field := index("uplink.collectors", i+1)
		c.remote(field, a)
		if slices.Contains(u.Collectors[:i], a) {
			c.fault(field, shown(a), "appears twice", "name each collector once")
		}
	}
	c.choice("uplink.carrier", u.Carrier, "auto", "sctp", "tcp")
	c.choice("uplink.underlay", u.Underlay, "tunnel", "bare")
	c.choice("uplink.profile", u.Profile, "default", "paper")
	patterns := map[string]bool{}
	for i, p := range u.Paths {
		p.check(c, index("uplink.path", i+1), patterns)
	}
	if len(u.Paths) == 0 && u.Carrier == "sctp" {
		c.fault("uplink.carrier", shown(u.Carrier), "needs to know the paths", `add [[uplink.path]] with interface = "wlan*" or the like, or write carrier = "auto"`)
	}
	if len(u.Paths) > maxPaths {
		c.fault("uplink.path", "", "appears too often", fmt.Sprintf("name at most %d; a pattern such as \"wwan*\" stands for several interfaces", maxPaths))
	}
	between(c, "uplink.flush_interval", u.FlushInterval, 0, Duration(time.Hour))
	between(c, "uplink.keepalive", u.Keepalive, Duration(time.Second), Duration(time.Hour))
	between(c, "uplink.ack_timeout", u.AckTimeout, Duration(time.Second), Duration(10*time.Minute))
	if len(u.Collectors) == 0 {
		return
	}
	const remedy = `give the file that "sluice-collector keys" made`
	if c.required("uplink.ca", u.CA, remedy) {
		c.authorities("uplink.ca", u.CA)
	}
	cert, key := c.required("uplink.cert", u.Cert, remedy), c.required("uplink.key", u.Key, remedy)
	if !cert || !key {
		return
	}
	if leaf := c.keyPair("uplink.cert", u.Cert, "uplink.key", u.Key); leaf != nil && leaf.Subject.CommonName != id {
		c.fault("uplink.cert", shown(u.Cert), fmt.Sprintf("was made for the gateway %q, and gateway.id is %q", leaf.Subject.CommonName, id),
			fmt.Sprintf("write id = %q under [gateway], or make a certificate for %q", leaf.Subject.CommonName, id))
	}
}
