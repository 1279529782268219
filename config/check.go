package config

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// checker collects what is wrong with values that could be decoded.
type checker struct {
	faults Faults
	// listeners are the addresses seen, with the field that took each.
	listeners map[string]string
}

func (c *checker) fault(field, value, problem, remedy string) {
	c.faults = append(c.faults, Fault{Field: field, Value: value, Problem: problem, Remedy: remedy})
}

// add adds what somebody else found, except in fields that have a fault already,
// or have one in them.
func (c *checker) add(faults Faults) {
	known := map[string]bool{}
	for _, f := range c.faults {
		for field := f.Field; field != ""; field = parent(field) {
			known[field] = true
		}
	}
	for _, f := range faults {
		if !known[f.Field] {
			c.faults = append(c.faults, f)
		}
	}
}

func (c *checker) version(v int) {
	switch {
	case v == 0:
		c.fault("version", "", "is missing", "put version = 1 into the first line")
	case v != 1:
		c.fault("version", strconv.Itoa(v), "is not known to this program", "write version = 1, or update the program")
	}
}

func (c *checker) required(field, value, remedy string) bool {
	if value == "" {
		c.fault(field, "", "is missing", remedy)
		return false
	}
	return true
}

// identifier is for what becomes a certificate's name, an MQTT topic level and
// a NATS subject token: letters, digits, hyphen and underscore.
func (c *checker) identifier(field, value string) {
	if !c.required(field, value, "give it a name of letters, digits, - and _") {
		return
	}
	if len(value) > 64 || !bareKey(value) {
		c.fault(field, shown(value), "is not a usable name", "use 1 to 64 letters, digits, - and _")
	}
}

// unique reports a name that an earlier item of the list has.
func (c *checker) unique(field, value string, seen map[string]bool) {
	if value != "" && seen[value] {
		c.fault(field, shown(value), "appears twice", "give each its own")
	}
	seen[value] = true
}

func (c *checker) choice(field, value string, choices ...string) {
	if slices.Contains(choices, value) {
		return
	}
	remedy := "choose " + orList(choices)
	if near := nearest(value, choices); near != "" && value != "" {
		remedy = fmt.Sprintf("did you mean %q? Choices: %s", near, orList(choices))
	}
	c.fault(field, shown(value), "is not a choice", remedy)
}

func orList(items []string) string {
	if len(items) < 2 {
		return strings.Join(items, "")
	}
	return strings.Join(items[:len(items)-1], ", ") + " or " + items[len(items)-1]
}

// between checks a value with a unit.
func between[T interface {
	~int64
	fmt.Stringer
}](c *checker, field string, v, low, high T) {
	if v < low || v > high {
		c.fault(field, shown(v.String()), "is out of range", fmt.Sprintf("choose between %q and %q", low.String(), high.String()))
	}
}

// listen checks an address to listen on, "host:port" with an IP address or
// nothing as host, and that nothing else listens there.
func (c *checker) listen(field, address string) (loopback bool) {
	host, port, ok := c.hostPort(field, address, `write address:port, such as "127.0.0.1:1883"`)
	if !ok {
		return true
	}
	ip := net.ParseIP(strings.Split(host, "%")[0])
	if host != "" && host != "localhost" && ip == nil {
		c.fault(field, shown(address), "is not an address of this machine",
			`write an IP address, such as "127.0.0.1:`+port+`" for this machine only or "0.0.0.0:`+port+`" for all networks`)
		return true
	}
	if port != "0" {
		for other, by := range c.listeners {
			h, p, _ := net.SplitHostPort(other)
			if p == port && (h == host || everyAddress(h) || everyAddress(host)) {
				c.fault(field, shown(address), "is taken by "+by, "give each listener a port of its own")
				break
			}
		}
	}
	if c.listeners == nil {
		c.listeners = map[string]string{}
	}
	if _, taken := c.listeners[address]; !taken {
		c.listeners[address] = field
	}
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func everyAddress(host string) bool { return host == "" || host == "0.0.0.0" || host == "::" }

// remote checks an address to connect to.
func (c *checker) remote(field, address string) {
	if host, port, ok := c.hostPort(field, address, `write host:port, such as "collector.example.org:7600"`); ok && (host == "" || port == "0") {
		c.fault(field, shown(address), "names no host or no port", `write host:port, such as "collector.example.org:7600"`)
	}
}

func (c *checker) hostPort(field, address, remedy string) (host, port string, ok bool) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || strings.ContainsAny(host, " /@") || strings.Contains(address, "/") {
		if strings.Contains(address, "://") {
			remedy = "leave out what stands before and with ://"
		}
		c.fault(field, shown(address), "is not host:port", remedy)
		return "", "", false
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		c.fault(field, shown(address), "has no usable port", "give a port between 1 and 65535")
		return "", "", false
	}
	return host, port, true
}

// brokerURL checks the URL of an MQTT broker and reports whether it asks for
// TLS.
func (c *checker) brokerURL(field, value string) (secure bool) {
	const remedy = `write "tcp://host:1883" or "tls://host:8883"`
	if !c.required(field, value, remedy) {
		return false
	}
	u, err := url.Parse(value)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "":
		c.fault(field, shown(value), "is not the address of a broker", remedy)
	case u.Scheme != "tcp" && u.Scheme != "tls":
		c.fault(field, shown(value), fmt.Sprintf("has the unknown scheme %q", u.Scheme), remedy)
	case u.User != nil:
		c.fault(field, shown(u.Redacted()), "holds credentials", "use username and password_file instead")
	case u.Port() == "" || u.Path != "" && u.Path != "/" || u.RawQuery != "":
		c.fault(field, shown(value), "needs a port and nothing after it", remedy)
	}
	return err == nil && u.Scheme == "tls"
}

// filter checks an MQTT topic filter (MQTT 3.1.1, 4.7).
func (c *checker) filter(field, value string) {
	if problem := filterProblem(value); problem != "" {
		c.fault(field, shown(value), problem, `+ stands for one whole level, # for all that follow: "home/+/temperature", "home/#"`)
	}
}

func (c *checker) filters(field string, values []string) {
	for i, v := range values {
		c.filter(index(field, i+1), v)
	}
}

func filterProblem(filter string) string {
	if filter == "" {
		return "is an empty topic"
	}
	if len(filter) > 65535 || !utf8.ValidString(filter) || strings.ContainsRune(filter, 0) {
		return "is not a topic"
	}
	levels := strings.Split(filter, "/")
	for i, level := range levels {
		if level == "#" && i < len(levels)-1 {
			return "has # before its end"
		}
		if len(level) > 1 && strings.ContainsAny(level, "+#") {
			return "has a wildcard inside a level"
		}
	}
	return ""
}

// readable checks that a file is there and returns its contents.
func (c *checker) readable(field, path string) []byte {
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.fault(field, shown(path), "does not exist", "copy the file there or correct the path")
	case errors.Is(err, fs.ErrPermission):
		c.fault(field, shown(path), "cannot be read: permission denied", "make it readable for the user that runs this program")
	case err != nil:
		c.fault(field, shown(path), "cannot be read: "+cause(err).Error(), "give the path of a file")
	}
	return data
}

// cause is an error without the path that the fault names already.
func cause(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// directory checks that a folder is one, or can still become one.
func (c *checker) directory(field, path string) {
	if !c.required(field, path, "give the path of a folder") {
		return
	}
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		c.fault(field, shown(path), "is not a folder", "give the path of a folder")
	}
}

// authorities checks a file of CA certificates.
func (c *checker) authorities(field, path string) {
	if path == "" {
		return
	}
	if data := c.readable(field, path); data != nil && !x509.NewCertPool().AppendCertsFromPEM(data) {
		c.fault(field, shown(path), "holds no certificate", "give a PEM file that begins with -----BEGIN CERTIFICATE-----")
	}
}

// keyPair checks a certificate with its key, which go together, and returns the
// certificate if both can be used.
func (c *checker) keyPair(certField, cert, keyField, key string) *x509.Certificate {
	switch {
	case cert == "" && key == "":
		return nil
	case cert == "":
		c.fault(certField, "", "is missing", "a key needs its certificate: give both")
		return nil
	case key == "":
		c.fault(keyField, "", "is missing", "a certificate needs its key: give both")
		return nil
	}
	before := len(c.faults)
	certPEM, keyPEM := c.readable(certField, cert), c.readable(keyField, key)
	if len(c.faults) > before {
		return nil
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		c.fault(certField, shown(cert), "cannot be used with its key: "+strings.TrimPrefix(err.Error(), "tls: "),
			"give a certificate in PEM form and the key that was made for it")
		return nil
	}
	return pair.Leaf
}

// secret completes a secret that may be given in the configuration or in a file
// of its own, which holds one line.
func (c *checker) secret(section, name string, value *string, path string) {
	if path == "" {
		return
	}
	if *value != "" {
		c.fault(join(section, name), "", "is given twice, here and with "+name+"_file", "keep one of them")
		return
	}
	field := join(section, name+"_file")
	before := len(c.faults)
	data := bytes.TrimRight(c.readable(field, path), "\r\n")
	if len(c.faults) > before {
		return
	}
	if len(data) == 0 || len(data) > 1024 || bytes.ContainsAny(data, "\r\n") {
		c.fault(field, shown(path), "does not hold one line of text", "put the secret alone into the file")
		return
	}
	*value = string(data)
}
