package broker

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"
)

// mosquittoClient returns a command of Debian's mosquitto clients for b.
func mosquittoClient(t *testing.T, b *Broker, program string, args ...string) *exec.Cmd {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Fatalf("%s is needed: apt-get install mosquitto-clients", program)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	_, port, _ := strings.Cut(b.Addrs()[0].String(), ":")
	return exec.CommandContext(ctx, program, append([]string{"-h", "127.0.0.1", "-p", port}, args...)...)
}

func TestMosquittoClients(t *testing.T) {
	for _, version := range []string{"311", "5"} {
		for qos := range 3 {
			t.Run(fmt.Sprintf("MQTT %s QoS %d", version, qos), func(t *testing.T) {
				sink := newGroupSink(t, time.Millisecond)
				b := start(t, Options{Sink: sink})
				common := []string{"-V", version, "-q", fmt.Sprint(qos), "-t", "site/room/t"}

				pub := mosquittoClient(t, b, "mosquitto_pub", append(common, "-r", "-m", "retained")...)
				if out, err := pub.CombinedOutput(); err != nil {
					t.Fatalf("mosquitto_pub: %v\n%s", err, out)
				}
				sink.awaitValues(t, "retained")

				// -l reads a message a line, and sends them in a window.
				const n = 50
				sub := mosquittoClient(t, b, "mosquitto_sub", append(common, "-C", fmt.Sprint(n+1), "-W", "15")...)
				var got strings.Builder
				sub.Stdout = &got
				if err := sub.Start(); err != nil {
					t.Fatal(err)
				}
				awaitSubscription(t, b, "site/room/t")
				var lines strings.Builder
				for i := range n {
					fmt.Fprintln(&lines, i)
				}
				pub = mosquittoClient(t, b, "mosquitto_pub", append(common, "-l")...)
				pub.Stdin = strings.NewReader(lines.String())
				if out, err := pub.CombinedOutput(); err != nil {
					t.Fatalf("mosquitto_pub: %v\n%s", err, out)
				}
				if err := sub.Wait(); err != nil {
					t.Fatalf("mosquitto_sub: %v; received\n%s", err, got.String())
				}
				if want := "retained\n" + lines.String(); got.String() != want {
					t.Errorf("mosquitto_sub: got %q, want %q", got.String(), want)
				}
				sink.awaitValues(t, strings.Fields(strings.ReplaceAll("retained\n"+lines.String(), "\n", " "))...)
			})
		}
	}
}

// awaitSubscription waits until somebody subscribes to topic.
func awaitSubscription(t *testing.T, b *Broker, topic string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(10 * time.Second); !b.hasSubscribers(topic); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("no subscriber to %s in 10 s", topic)
		}
	}
}

// MQTT 5 tells mosquitto_pub why a publish is refused, in its exit code.
func TestMosquittoIsRefused(t *testing.T) {
	b := start(t, Options{Sink: newGroupSink(t, 0), Anonymous: Rights{Publish: []string{"allowed"}}})
	pub := mosquittoClient(t, b, "mosquitto_pub", "-V", "5", "-q", "1", "-t", "denied", "-m", "x")
	out, err := pub.CombinedOutput()
	if !strings.Contains(string(out), "Not authorized") {
		t.Errorf("mosquitto_pub: got %v %q, want to be told that it is not authorized", err, out)
	}
	if got := b.Stats().Refused["rights"]; got != 1 {
		t.Errorf("refused: got %d, want 1 (reason code %#x)", got, packets.ErrNotAuthorized.Code)
	}
}
