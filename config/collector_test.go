package config

import (
	"strings"
	"testing"
)

func TestCollectorFaults(t *testing.T) {
	cert, key := selfSigned(t, "collector")
	dir := writeFiles(t, map[string]string{"keys/ca.crt": cert, "keys/collector.crt": cert, "keys/collector.key": key})
	const head = "version = 1\n[collector]\nca = \"keys/ca.crt\"\ncert = \"keys/collector.crt\"\nkey = \"keys/collector.key\"\n"
	tests := []struct {
		name, text, want string
	}{
		{"keys", "version = 1\n[collector]\nlisten = []\n",
			"2: collector.ca: is missing; give the file that \"sluice-collector keys\" made\n" +
				"2: collector.cert: is missing; give the file that \"sluice-collector keys\" made\n" +
				"2: collector.key: is missing; give the file that \"sluice-collector keys\" made\n" +
				"3: collector.listen = []: leaves the collector without a listener; write listen = [\"0.0.0.0:7600\"]\n"},
		{"no output", head + "[jetstream]\nenabled = false\n",
			"7: jetstream.enabled = false: leaves the collector without an output; enable it, or add [mqtt] or [files]\n"},
		{"embedded and elsewhere", head + "[jetstream]\nurl = \"nats://n:4222\"\nca = \"keys/ca.crt\"\nreplicas = 3\nlisten = \"0.0.0.0:4222\"\nstream = \"A.B\"\nmax_age = \"1s\"\nmax_bytes = \"1KB\"\n",
			"7: jetstream.url = \"nats://n:4222\": names a server elsewhere, and embedded is true; write embedded = false, or remove the URL\n" +
				"8: jetstream.ca = \"DIR/keys/ca.crt\": is for a server elsewhere, and embedded is true; write embedded = false, or remove it\n" +
				"9: jetstream.replicas = 3: needs a cluster, and embedded is true; write replicas = 1, or name a cluster with url\n" +
				"10: jetstream.listen = \"0.0.0.0:4222\": can be reached by other machines, and clients need no password; give user and password\n" +
				"11: jetstream.stream = \"A.B\": is not a usable name; use 1 to 64 letters, digits, - and _\n" +
				"12: jetstream.max_age = \"1s\": is out of range; choose between \"1m0s\" and \"87600h0m0s\"\n" +
				"13: jetstream.max_bytes = \"1KB\": is out of range; choose between \"1MB\" and \"1000TB\"\n"},
		{"elsewhere", head + "[jetstream]\nembedded = false\nurl = \"nats://u:p@a:4222, http://b, nats://\"\nuser = \"u\"\nreplicas = 7\ncredentials = \"none.creds\"\n",
			"8: jetstream.url = \"nats://u:xxxxx@a:4222\": holds credentials; use user and password_file, or credentials\n" +
				"8: jetstream.url = \" http://b\": has the unknown scheme \"http\"; write \"nats://host:4222\" or \"tls://host:4222\", several with commas between\n" +
				"8: jetstream.url = \" nats://\": is not the address of a server; write \"nats://host:4222\" or \"tls://host:4222\", several with commas between\n" +
				"9: jetstream.user = \"u\": is given together with credentials; keep one of them\n" +
				"9: jetstream.user: needs a password, and a password needs a user; give both or none\n" +
				"10: jetstream.replicas = 7: is out of range; choose between 1 and 5; 3 survive the loss of one server\n" +
				"11: jetstream.credentials = \"DIR/none.creds\": does not exist; copy the file there or correct the path\n"},
		{"other outputs", head + "[mqtt]\nca = \"keys/ca.crt\"\nurl = \"tcp://b:1883\"\ntopic_prefix = \"/a\"\n[files]\nkeep = 1\nrotate_bytes = \"1B\"\n",
			"7: mqtt.ca = \"DIR/keys/ca.crt\": is of no use without TLS; write the URL with \"tls://\", or remove this\n" +
				"9: mqtt.topic_prefix = \"/a\": is not a topic; write it without wildcards and without / at its ends, such as \"sluice\"\n" +
				"11: files.keep = 1: is out of range; choose between 2 and 100000 files\n" +
				"12: files.rotate_bytes = \"1B\": is out of range; choose between \"1MB\" and \"1TB\"\n"},
		{"tunnel", head + "[tunnel]\nport = 0\nnetwork = \"10.213.0.1/16\"\n",
			"7: tunnel.port = 0: is not a port; choose between 1 and 65535; 51820 is usual\n" +
				"8: tunnel.network = \"10.213.0.1/16\": is not a network of 8 to 24 bits; write a private IPv4 network that no gateway and no uplink uses, such as \"10.213.0.0/16\"\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := ParseCollector([]byte(test.text), dir)
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

// TestCollectorExample loads what init-config writes as it is, and again with
// everything switched on that it only shows.
func TestCollectorExample(t *testing.T) {
	cert, key := selfSigned(t, "collector")
	dir := writeFiles(t, map[string]string{"keys/ca.crt": cert, "keys/collector.crt": cert, "keys/collector.key": key,
		"reader.password": "a", "mqtt.password": "b"})
	c, err := ParseCollector([]byte(CollectorExample()), dir)
	if err != nil {
		t.Fatalf("as it is: %v", err)
	}
	if c.MQTT != nil || c.Files != nil {
		t.Errorf("outputs that are off: got %v and %v", c.MQTT, c.Files)
	}
	c, err = ParseCollector([]byte(uncommented(CollectorExample())), dir)
	if err != nil {
		t.Fatalf("with everything on: %v", err)
	}
	if c.MQTT.Password != "b" || c.Files.Keep != 16 || c.JetStream.MaxBytes != 100e9 {
		t.Errorf("got %+v %+v %+v", c.MQTT, c.Files, c.JetStream)
	}
}
