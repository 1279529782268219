package config

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestGatewayFaults holds one wrong configuration a case, with every fault that
// it must report.
func TestGatewayFaults(t *testing.T) {
	cert, key := selfSigned(t, "gw-1")
	_, otherKey := selfSigned(t, "gw-1")
	dir := writeFiles(t, map[string]string{
		"gw.crt": cert, "gw.key": key, "other.key": otherKey, "text": "no certificate\n", "empty": "",
		"two": "one\ntwo\n", "secret": "hush\r\n",
	})
	const head = "version = 1\n[gateway]\nid = \"gw-1\"\n"
	tests := []struct {
		name, text, want string
	}{
		{"nothing", "", "version: is missing; put version = 1 into the first line\n"},
		{"version of the future", "version = 2\n", "1: version = 2: is not known to this program; write version = 1, or update the program\n"},
		{"version as text", "version = \"1\"\n", "1: version = \"1\": must be a whole number, not a text; write digits only, without quotes\n"},
		{"misspelt keys and sections", head + "[brokr]\nlisten = []\n[store]\nqouta = \"1GB\"\nbase_topics = []\nfrobnicate = 3\n",
			"4: brokr: unknown section; did you mean \"broker\"?\n" +
				"7: store.qouta: unknown key; did you mean \"quota\"?\n" +
				"8: store.base_topics: unknown key; it belongs into [zigbee2mqtt]\n" +
				"9: store.frobnicate: unknown key; known here: quota, policy, commit_interval, commit_bytes\n"},
		{"wrong case", head + "[Store]\nquota = \"1B\"\n[broker]\nListen = [\"127.0.0.1:1883\"]\n",
			"4: Store: keys are written in lower case; write \"store\"\n" +
				"5: store.quota = \"1B\": is out of range; choose between \"1MiB\" and \"1TB\"\n" +
				"7: broker.Listen: keys are written in lower case; write \"listen\"\n"},
		{"twice", head + "[store]\nquota = \"1GB\"\nquota = \"2GB\"\n[store]\npolicy = \"reject\"\n",
			"6: store.quota: key appears twice, first on line 5; remove one of the two\n" +
				"7: store: section appears twice, first on line 4; put its keys together under one header\n"},
		{"wrong types", head + "[broker]\nenabled = \"yes\"\nlisten = \"127.0.0.1:1883\"\nmax_packet = 1000000\n[store]\npolicy = 3\ncommit_interval = 20\n[[mqtt]]\nname = \"a\"\nurl = \"tcp://a:1883\"\nqos = \"1\"\n",
			"5: broker.enabled = \"yes\": must be true or false, not a text; write true or false, without quotes\n" +
				"6: broker.listen = \"127.0.0.1:1883\": must be a list, not a text; write [\"127.0.0.1:1883\"]\n" +
				"7: broker.max_packet = 1000000: must be a text, not a whole number; write a number with KB, MB or GB, such as \"256MB\"\n" +
				"9: store.policy = 3: must be a text, not a whole number; write \"3\"\n" +
				"10: store.commit_interval = 20: must be a text, not a whole number; write a number with ms, s, m or h, such as \"20ms\" or \"1m30s\"\n" +
				"14: mqtt[1].qos = \"1\": must be a whole number, not a text; write digits only, without quotes\n"},
		{"list and section exchanged", head + "[mqtt]\nname = \"a\"\n[[store]]\nquota = \"1GB\"\n",
			"4: mqtt: is a list of sections; write [[mqtt]] with two brackets\n" +
				"4: mqtt[1].url: is missing; write \"tcp://host:1883\" or \"tls://host:8883\"\n" +
				"6: store: must be a section, not a list of tables; write [store], alone on its line, and its keys below\n"},
		{"not TOML, several times", head + "[store]\nquota = 1GB\npolicy = reject\ncommit_interval = \u201c20ms\u201d\n[uplink\nkeepalive = 3\n[log]\nlevel = \"loud\"\n",
			"5: store.quota: not TOML: strings must be quoted; write text in quotes: \"1GB\"\n" +
				"6: store.policy: not TOML: unexpected character U+0072 'r' at start of value; write text in quotes: \"reject\"\n" +
				"7: store.commit_interval: not TOML: unexpected character '\u201c'; use straight quotes: \"\n" +
				"8: not TOML: expected ']' to close table name; write a section as [name], an entry of a list as [[name]], alone on its line\n" +
				"11: log.level = \"loud\": is not a choice; choose debug, info, warn or error\n"},
		{"not a duration, not a size", head + "[store]\nquota = \"256 megs\"\ncommit_interval = \"20\"\n",
			"5: store.quota = \"256 megs\": not a size; write a number with KB, MB or GB, such as \"256MB\"\n" +
				"6: store.commit_interval = \"20\": not a time span; write a number with ms, s, m or h, such as \"20ms\" or \"1m30s\"\n"},
		{"out of range", head + "[broker]\nmax_packet = \"1GB\"\n[push]\nmax_body = \"10B\"\n[store]\nquota = \"1MB\"\npolicy = \"drop_oldest\"\ncommit_interval = \"1m\"\ncommit_bytes = \"0B\"\n[uplink]\nflush_interval = \"-1s\"\nkeepalive = \"0s\"\nack_timeout = \"1h\"\n",
			"5: broker.max_packet = \"1GB\": is out of range; choose between \"1KB\" and \"256MB\"\n" +
				"7: push.max_body = \"10B\": is out of range; choose between \"1KB\" and \"64MB\"\n" +
				"9: store.quota = \"1MB\": is out of range; choose between \"1MiB\" and \"1TB\"\n" +
				"10: store.policy = \"drop_oldest\": is not a choice; did you mean \"drop-oldest\"? Choices: drop-oldest or reject\n" +
				"11: store.commit_interval = \"1m0s\": is out of range; choose between \"1ms\" and \"10s\"\n" +
				"12: store.commit_bytes = \"0B\": is out of range; choose between \"1KB\" and \"16MB\"\n" +
				"14: uplink.flush_interval = \"-1s\": is out of range; choose between \"0s\" and \"1h0m0s\"\n" +
				"15: uplink.keepalive = \"0s\": is out of range; choose between \"1s\" and \"1h0m0s\"\n" +
				"16: uplink.ack_timeout = \"1h0m0s\": is out of range; choose between \"1s\" and \"10m0s\"\n"},
		{"names", "version = 1\n[gateway]\nid = \"gate way\"\ndata_dir = \"\"\nstatus_socket = \"/" + strings.Repeat("s", 107) + "\"\n",
			"3: gateway.id = \"gate way\": is not a usable name; use 1 to 64 letters, digits, - and _\n" +
				"4: gateway.data_dir: is missing; give the path of a folder\n" +
				"5: gateway.status_socket = \"/" + strings.Repeat("s", 78) + "...: is too long for a socket's path; use at most 107 letters\n"},
		{"addresses", head + "[broker]\nlisten = [\"127.0.0.1\", \"localhost:99999\",\n  \"gateway.example.org:1883\", \"127.0.0.1:1883\"]\n[push]\nlisten = \"127.0.0.1:1883\"\n[metrics]\nlisten = \":1883\"\n",
			"5: broker.listen[1] = \"127.0.0.1\": is not host:port; write address:port, such as \"127.0.0.1:1883\"\n" +
				"5: broker.listen[2] = \"localhost:99999\": has no usable port; give a port between 1 and 65535\n" +
				"6: broker.listen[3] = \"gateway.example.org:1883\": is not an address of this machine; write an IP address, such as \"127.0.0.1:1883\" for this machine only or \"0.0.0.0:1883\" for all networks\n" +
				"8: push.listen = \"127.0.0.1:1883\": is taken by broker.listen[4]; give each listener a port of its own\n" +
				"10: metrics.listen = \":1883\": is taken by broker.listen[4]; give each listener a port of its own\n"},
		{"open to the network", head + "[broker]\nlisten = [\"0.0.0.0:1883\"]\n[push]\nlisten = \"0.0.0.0:8080\"\n",
			"5: broker.listen[1]: can be reached by other machines, and clients need no password; write anonymous = false and add [[broker.user]], or allow it with anonymous_network = true\n" +
				"7: push.listen = \"0.0.0.0:8080\": can be reached by other machines, and pushing needs no token; add a [[push.node]] with a token for each sink node\n"},
		{"nobody can log in", head + "[broker]\nanonymous = false\nlisten = []\n",
			"5: broker.anonymous = false: lets nobody in, for there is no user; add [[broker.user]], or write anonymous = true\n" +
				"6: broker.listen = []: leaves the broker without a listener; give an address, or write enabled = false\n"},
		{"users", head + "[[broker.user]]\nname = \"a\"\n[[broker.user]]\nname = \"a\"\npassword = \"x\"\npassword_file = \"secret\"\npublish = [\"a/#/b\", \"a+\", \"\"]\n[[broker.user]]\npassword_file = \"two\"\npassword_hash = \"h\"\n[[broker.user]]\nname = \"e\"\npassword_file = \"empty\"\n[[broker.user]]\nname = \"h\"\npassword_hash = \"secret\"\n",
			"4: broker.user[1].password: is missing; give password, password_file or password_hash\n" +
				"7: broker.user[2].name = \"a\": appears twice; give each its own\n" +
				"8: broker.user[2].password: is given twice, here and with password_file; keep one of them\n" +
				"10: broker.user[2].publish[1] = \"a/#/b\": has # before its end; + stands for one whole level, # for all that follow: \"home/+/temperature\", \"home/#\"\n" +
				"10: broker.user[2].publish[2] = \"a+\": has a wildcard inside a level; + stands for one whole level, # for all that follow: \"home/+/temperature\", \"home/#\"\n" +
				"10: broker.user[2].publish[3] = \"\": is an empty topic; + stands for one whole level, # for all that follow: \"home/+/temperature\", \"home/#\"\n" +
				"11: broker.user[3].name: is missing; give the name that the client logs in with\n" +
				"12: broker.user[3].password_file = \"DIR/two\": does not hold one line of text; put the secret alone into the file\n" +
				"13: broker.user[3].password_hash: is given together with a password; keep one of them\n" +
				"16: broker.user[4].password_file = \"DIR/empty\": does not hold one line of text; put the secret alone into the file\n" +
				"19: broker.user[5].password_hash: is not a password hash; give what \"sluice hash-password\" prints\n"},
		{"TLS listener", head + "[broker]\ntls_listen = [\"127.0.0.1:8883\"]\n[push]\ntls_cert = \"gw.crt\"\ntls_key = \"other.key\"\n",
			"5: broker.tls_listen: needs a certificate; give tls_cert and tls_key\n" +
				"7: push.tls_cert = \"DIR/gw.crt\": cannot be used with its key: private key does not match public key; give a certificate in PEM form and the key that was made for it\n"},
		{"certificate without listener", head + "[broker]\ntls_cert = \"gw.crt\"\ntls_key = \"gw.key\"\n",
			"5: broker.tls_cert = \"DIR/gw.crt\": is given, but nothing listens with TLS; add tls_listen, or remove the certificate\n"},
		{"brokers elsewhere", head + "[[mqtt]]\nname = \"a\"\nurl = \"mqtt://a:1883\"\n[[mqtt]]\nname = \"a\"\nurl = \"tcp://u:pw@b:1883\"\n[[mqtt]]\nurl = \"tcp://b\"\nca = \"gw.crt\"\ntopics = []\nqos = 3\npassword = \"p\"\n[[mqtt]]\nname = \"d\"\n",
			"6: mqtt[1].url = \"mqtt://a:1883\": has the unknown scheme \"mqtt\"; write \"tcp://host:1883\" or \"tls://host:8883\"\n" +
				"8: mqtt[2].name = \"a\": appears twice; give each its own\n" +
				"9: mqtt[2].url = \"tcp://u:xxxxx@b:1883\": holds credentials; use username and password_file instead\n" +
				"10: mqtt[3].name: is missing; give it a name of letters, digits, - and _\n" +
				"10: mqtt[3].username: is missing; a password needs its user name\n" +
				"11: mqtt[3].url = \"tcp://b\": needs a port and nothing after it; write \"tcp://host:1883\" or \"tls://host:8883\"\n" +
				"12: mqtt[3].ca = \"DIR/gw.crt\": is of no use without TLS; write the URL with \"tls://\", or remove this\n" +
				"13: mqtt[3].topics = []: subscribes to nothing; give at least one topic, such as \"zigbee2mqtt/#\"\n" +
				"14: mqtt[3].qos = 3: is out of range; choose 0, 1 or 2; only 1 and 2 lose nothing\n" +
				"16: mqtt[4].url: is missing; write \"tcp://host:1883\" or \"tls://host:8883\"\n"},
		{"sink nodes", head + "[[push.node]]\nname = \"a\"\ntoken = \"short\"\n[[push.node]]\nname = \"b\"\ntoken = \"0123456789abcdef\"\n[[push.node]]\nname = \"c\"\ntoken = \"0123456789abcdef\"\n",
			"4: push.listen: is missing; nodes cannot push without a listener: write listen = \"0.0.0.0:8080\"\n" +
				"6: push.node[1].token: is too short to be a secret; use at least 16 letters, such as what \"openssl rand -hex 16\" prints\n" +
				"12: push.node[3].token: is another node's token; give each node its own\n"},
		{"secrets stay hidden", head + "[[push.node]]\nname = \"a\"\ntoken = 1234567890123456\n",
			"4: push.listen: is missing; nodes cannot push without a listener: write listen = \"0.0.0.0:8080\"\n" +
				"6: push.node[1].token: must be a text, not a whole number; write it in quotes\n"},
		{"base topics, rules, alarms", head + "[zigbee2mqtt]\nbase_topics = [\"zigbee2mqtt/#\"]\n[[rule]]\nformat = \"xml\"\n[[rule]]\ntopic = \"a/#/b\"\nformat = \"jsn\"\n[[alarm]]\n[[alarm]]\nabove = \"hot\"\nbelow = 0x10\n[[alarm]]\nname = \"temperature\"\nabove = 4\nbelow = 9.5\n",
			"5: zigbee2mqtt.base_topics[1] = \"zigbee2mqtt/#\": is not a base topic; write it as in Zigbee2MQTT's mqtt.base_topic, such as \"zigbee2mqtt\"\n" +
				"6: rule[1].topic: is missing; give the topic it is for, such as \"weather/+/outside\"\n" +
				"7: rule[1].format = \"xml\": is not a choice; choose auto, json, scalar, zigbee2mqtt, tasmota, senml, raw or ignore\n" +
				"9: rule[2].topic = \"a/#/b\": has # before its end; + stands for one whole level, # for all that follow: \"home/+/temperature\", \"home/#\"\n" +
				"10: rule[2].format = \"jsn\": is not a choice; did you mean \"json\"? Choices: auto, json, scalar, zigbee2mqtt, tasmota, senml, raw or ignore\n" +
				"11: alarm[1]: makes every reading an alarm; give device, name, above, below or equals\n" +
				"13: alarm[2].above = \"hot\": is not a decimal number; write digits without quotes, such as 60 or 4.5\n" +
				"14: alarm[2].below = 0x10: is not a decimal number; write digits without quotes, such as 60 or 4.5\n" +
				"15: alarm[3]: is raised by every number: above 4 or below 9.5; above is the upper limit and below the lower one: exchange them\n"},
		{"uplink", head + "[uplink]\ncollectors = [\"collector\", \"tcp://c:7600\", \"c:7600\", \"c:7600\", \":7600\"]\nca = \"text\"\ncert = \"gw.crt\"\n",
			"4: uplink.key: is missing; give the file that \"sluice-collector keys\" made\n" +
				"5: uplink.collectors[1] = \"collector\": is not host:port; write host:port, such as \"collector.example.org:7600\"\n" +
				"5: uplink.collectors[2] = \"tcp://c:7600\": is not host:port; leave out what stands before and with ://\n" +
				"5: uplink.collectors[4] = \"c:7600\": appears twice; name each collector once\n" +
				"5: uplink.collectors[5] = \":7600\": names no host or no port; write host:port, such as \"collector.example.org:7600\"\n" +
				"6: uplink.ca = \"DIR/text\": holds no certificate; give a PEM file that begins with -----BEGIN CERTIFICATE-----\n"},
		{"paths", head + "[uplink]\ncarrier = \"quic\"\nunderlay = \"none\"\nprofile = \"papers\"\n[[uplink.path]]\n[[uplink.path]]\ninterface = \"wlan[\"\n[[uplink.path]]\ninterface = \"wwan*\"\ncollector = \"c\"\n[[uplink.path]]\ninterface = \"wwan*\"\n[[uplink.path]]\ninterface = \"eth0\"\n",
			"5: uplink.carrier = \"quic\": is not a choice; choose auto, sctp or tcp\n" +
				"6: uplink.underlay = \"none\": is not a choice; choose tunnel or bare\n" +
				"7: uplink.profile = \"papers\": is not a choice; did you mean \"paper\"? Choices: default or paper\n" +
				"8: uplink.path[1].interface: is missing; name it as \"ip link\" shows it, with * for any letters, such as \"wlan*\"\n" +
				"8: uplink.path: appears too often; name at most 4; a pattern such as \"wwan*\" stands for several interfaces\n" +
				"10: uplink.path[2].interface = \"wlan[\": is not the name of an interface; name it as \"ip link\" shows it, with * for any letters, such as \"wlan*\"\n" +
				"13: uplink.path[3].collector = \"c\": is not host:port; write host:port, such as \"collector.example.org:7600\"\n" +
				"15: uplink.path[4].interface = \"wwan*\": appears twice; give each its own\n"},
		{"SCTP without paths", head + "[uplink]\ncarrier = \"sctp\"\n",
			"5: uplink.carrier = \"sctp\": needs to know the paths; add [[uplink.path]] with interface = \"wlan*\" or the like, or write carrier = \"auto\"\n"},
		{"missing file, another gateway's certificate", "version = 1\n[gateway]\nid = \"gw-2\"\n[uplink]\ncollectors = [\"c:7600\"]\nca = \"nowhere.crt\"\ncert = \"gw.crt\"\nkey = \"gw.key\"\n",
			"6: uplink.ca = \"DIR/nowhere.crt\": does not exist; copy the file there or correct the path\n" +
				"7: uplink.cert = \"DIR/gw.crt\": was made for the gateway \"gw-1\", and gateway.id is \"gw-2\"; write id = \"gw-1\" under [gateway], or make a certificate for \"gw-2\"\n"},
		{"UTF-16", "\xff\xfev\x00e\x00", "1: file is not UTF-8 text; save it as UTF-8\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := ParseGateway([]byte(test.text), dir, nil)
			fs, ok := err.(Faults)
			if !ok {
				t.Fatalf("got %v, want faults", err)
			}
			got := strings.ReplaceAll(strings.ReplaceAll("\n"+fs.Report(""), dir, "DIR"), "\nline ", "\n")[1:]
			if got != test.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, test.want)
			}
		})
	}
}

// TestGatewayExample loads what init-config writes as it is, and again with
// everything switched on that it only shows.
func TestGatewayExample(t *testing.T) {
	if _, err := ParseGateway([]byte(GatewayExample()), t.TempDir(), nil); err != nil {
		t.Errorf("as it is: %v", err)
	}
	cert, key := selfSigned(t, "gateway-1")
	dir := writeFiles(t, map[string]string{"broker.crt": cert, "broker.key": key, "push.crt": cert, "push.key": key,
		"house-ca.crt": cert, "ca.crt": cert, "gateway-1.crt": cert, "gateway-1.key": key,
		"zigbee2mqtt.password": "a", "house.password": "b", "barn.token": "0123456789abcdef"})
	text := uncommented(GatewayExample())
	text = strings.Replace(text, "anonymous_network = false", "anonymous_network = true", 1)
	text = strings.Replace(text, "[push]\nlisten = \"\"", "[push]\nlisten = \"0.0.0.0:8080\"", 1)
	g, err := ParseGateway([]byte(text), dir, nil)
	if err != nil {
		t.Fatalf("with everything on: %v", err)
	}
	if got, want := g.Push.Nodes[0].Token, "0123456789abcdef"; got != want {
		t.Errorf("token from its file: got %q, want %q", got, want)
	}
}

// TestCheckAddsFaults has somebody else find faults: they get their lines, and
// only the first fault of a field is told.
func TestCheckAddsFaults(t *testing.T) {
	_, err := ParseGateway([]byte("version = 1\n[[rule]]\ntopic = \"a/#/b\"\ninvalid = { p = [\"x\"] }\ndevice = \"{\"\n"), "/", func(*Gateway) Faults {
		return Faults{{Field: "rule[1].topic", Problem: "is worse"}, {Field: "rule[1].invalid", Problem: "is worse"},
			{Field: "rule[1].device", Problem: "is wrong"}, {Field: "rule[1].name", Problem: "is wrong"}}
	})
	want := "configuration: line 2: rule[1].name: is wrong\n" +
		"line 3: rule[1].topic = \"a/#/b\": has # before its end; + stands for one whole level, # for all that follow: \"home/+/temperature\", \"home/#\"\n" +
		"line 4: rule[1].invalid.p[1] = \"x\": is not a decimal number; write the number as the device sends it, without quotes, such as -32768\n" +
		"line 5: rule[1].device: is wrong"
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// uncommented removes the "# " before keys and headers.
func uncommented(example string) string {
	var b strings.Builder
	for line := range strings.Lines(example) {
		rest, ok := strings.CutPrefix(line, "# ")
		key, _, isKey := strings.Cut(rest, " = ")
		if ok && (isKey && bareKey(key) || strings.HasPrefix(rest, "[")) {
			line = rest
		}
		b.WriteString(line)
	}
	return b.String()
}

// TestGatewayExampleShowsDefaults compares what the example says with what
// holds without it.
func TestGatewayExampleShowsDefaults(t *testing.T) {
	got, err := ParseGateway([]byte(GatewayExample()), "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	want, err := ParseGateway([]byte("version = 1\n"), "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// TestGatewayWindowsFile is field case F33: line endings and a byte-order mark
// of Windows, and the ending that its editor adds to the name.
func TestGatewayWindowsFile(t *testing.T) {
	text := "\xef\xbb\xbf" + strings.ReplaceAll("version = 1\n[gateway]\nid = \"gw-1\"\n[store]\nquota = \"1GB\"\n", "\n", "\r\n")
	dir := writeFiles(t, map[string]string{"sluice.toml.txt": text})
	g, err := LoadGateway(filepath.Join(dir, "sluice.toml.txt"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if g.Gateway.ID != "gw-1" || g.Store.Quota != 1e9 {
		t.Errorf("got id %q and quota %v, want gw-1 and 1GB", g.Gateway.ID, g.Store.Quota)
	}
	_, err = LoadGateway(filepath.Join(dir, "sluice.toml"), nil)
	if err == nil || !strings.Contains(err.Error(), "there is a sluice.toml.txt: rename it") {
		t.Errorf("got %v, want a hint at sluice.toml.txt", err)
	}
	bad := strings.ReplaceAll(text, "quota", "qouta")
	_, err = ParseGateway([]byte(bad), dir, nil)
	if fs, ok := err.(Faults); !ok || len(fs) != 1 || fs[0].Line != 5 {
		t.Errorf("got %v, want one fault on line 5", err)
	}
}

// TestGatewayCompletes checks what follows from other keys.
func TestGatewayCompletes(t *testing.T) {
	g, err := ParseGateway([]byte(`version = 1
gateway = { id = "gw-1", data_dir = "data" }
store.commit_interval = "1m"
store.commit_interval_ = 1
`), "/etc/sluice", nil)
	if err == nil {
		t.Fatal("unknown dotted key was taken")
	}
	g, err = ParseGateway([]byte(`version = 1
gateway = { id = "gw-1", data_dir = "data" }
store.commit_interval = "1s"
[[mqtt]]
name = "house"
url = "tcp://house:1883"
[[rule]]
topic = "a/+"
fields = { t = { unit = "Cel" } }
invalid = { t = [-32768, 6.5e3] }
[[alarm]]
name = "smoke"
equals = true
`), "/etc/sluice", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name      string
		got, want any
	}{
		{"data_dir", g.Gateway.DataDir, "/etc/sluice/data"},
		{"status_socket", g.Gateway.StatusSocket, "/etc/sluice/data/sluice.sock"},
		{"commit_interval", time.Duration(g.Store.CommitInterval), time.Second},
		{"client_id", g.MQTT[0].ClientID, "sluice-gw-1-house"},
		{"topics", g.MQTT[0].Topics, []string{"zigbee2mqtt/#"}},
		{"qos", g.MQTT[0].QoS, 1},
		{"format", g.Rules[0].Format, "auto"},
		{"fields", g.Rules[0].Fields, map[string]Field{"t": {Unit: "Cel"}}},
		{"invalid", g.Rules[0].Invalid, map[string][]Scalar{"t": {{"-32768", ScalarNumber}, {"6.5e3", ScalarNumber}}}},
		{"equals", g.Alarms[0].Equals, Scalar{"true", ScalarBool}},
	} {
		if !reflect.DeepEqual(test.got, test.want) {
			t.Errorf("%s: got %v, want %v", test.name, test.got, test.want)
		}
	}
}
