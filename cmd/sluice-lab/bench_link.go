package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"

	"sluice/lab"
	"sluice/lab/topology"
)

// linkCase is one way in which office rooms report.
type linkCase struct {
	name, what string
	flush      time.Duration
	together   int // messages of one round, which go out as one
	rooms      int // whose messages these are
}

var linkCases = []linkCase{
	{"rooms", "20 rooms once a minute, flush 60 s", time.Second, lab.Rooms, lab.Rooms},
	{"room", "one room once a minute, flush 60 s", 200 * time.Millisecond, 1, 1},
	{"flush", "20 rooms one after another, flush 1 s", 200 * time.Millisecond, 1, lab.Rooms},
}

// officeValues is how many values an office message has.
const officeValues = 6

// The two ends of the link whose packets are counted, from the block that RFC
// 2544 sets aside for measurements.
const (
	nearAddress = "198.18.77.1"
	farAddress  = "198.18.77.2"
)

// farSide is a host for the collector, behind a link whose packets are counted.
type farSide struct {
	host *topology.Host
	link *topology.Link
}

func newFar() (*farSide, error) {
	host, err := topology.NewHost("far")
	if err != nil {
		return nil, err
	}
	link, err := topology.Connect(
		topology.EndOptions{Device: "sluicelab0", Address: netip.MustParsePrefix(nearAddress + "/30")},
		topology.EndOptions{Host: host, Device: "eth0", Address: netip.MustParsePrefix(farAddress + "/30")},
	)
	if err != nil {
		return nil, errors.Join(err, host.Close())
	}
	return &farSide{host: host, link: link}, nil
}

// Close takes the link down and lets the host go.
func (f *farSide) Close() error { return errors.Join(f.link.Close(), f.host.Close()) }

// link measures bytes on the link by counting the packets on one.
func (b *benchmark) link(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	office, err := lab.LoadOffice(b.recordings)
	if err != nil {
		return err
	}
	far, err := newFar()
	if err != nil {
		fmt.Fprintf(b.stderr, "left out: %v\n", err)
		return nil
	}
	defer far.Close()
	for _, c := range linkCases {
		if err := b.linkRounds(ctx, far, office, c); err != nil {
			return err
		}
	}
	if err := b.linkDrain(ctx, far, office); err != nil {
		return err
	}
	return b.linkMQTT(ctx, far, office)
}

// linkRounds measures rounds of messages that are flushed together.
func (b *benchmark) linkRounds(ctx context.Context, f *farSide, office lab.Office, c linkCase) error {
	site, err := b.site(ctx, "link-"+c.name, lab.SiteOptions{Far: f.host, Reach: []string{farAddress}, Flush: c.flush})
	if err != nil {
		return err
	}
	defer site.Close()
	if err := site.Start(ctx); err != nil {
		return err
	}
	counter, err := site.Oracle().Follow(ctx, "")
	if err != nil {
		return err
	}
	defer counter.Close()
	var feed lab.Feed = office
	if c.rooms == 1 {
		feed = everyNth{office, lab.Rooms}
	}
	var before topology.Traffic
	// The first rounds carry the connection's set-up and the names, which then
	// stay known for as long as the connection lives.
	warm, rounds := uint64(3), b.scale(20, 6)
	for r := range warm + rounds {
		if r == warm {
			if before, err = f.link.Traffic(); err != nil {
				return err
			}
		}
		first := r * uint64(c.together)
		load := lab.StartLoad(ctx, lab.LoadOptions{
			Address: site.Broker(), Feeds: []lab.Feed{lab.From(feed, first)}, Window: window, Messages: uint64(c.together),
		})
		if err := load.Wait(ctx); err != nil {
			return err
		}
		if err := counter.Await(ctx, (first+uint64(c.together))*officeValues); err != nil {
			return err
		}
		if err := settle(ctx); err != nil {
			return err
		}
	}
	after, err := f.link.Traffic()
	if err != nil {
		return err
	}
	b.addTraffic("link", c.name, "Sluice, "+c.what, after.Sub(before), rounds*uint64(c.together))
	return site.Stop(ctx)
}

// everyNth is a feed of every nth message of another.
type everyNth struct {
	feed lab.Feed
	n    uint64
}

// Compose implements lab.Feed.
func (e everyNth) Compose(dst []byte, m uint64) (string, []byte) { return e.feed.Compose(dst, m*e.n) }

// settle waits until the last delayed acknowledgement has crossed the link: the
// kernel holds one back for at most 200 ms.
func settle(ctx context.Context) error {
	t := time.NewTimer(300 * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// addTraffic adds the figures of what messages have cost.
func (b *benchmark) addTraffic(kind, name, what string, t topology.Traffic, messages uint64) {
	readings := float64(messages * officeValues)
	b.figures.add(kind+"_bytes_"+name, what, float64(t.Bytes)/readings, "bytes/reading")
	b.figures.add(kind+"_packets_"+name, what, float64(t.Packets)/float64(messages), "packets/message")
}

// linkDrain measures a backlog that goes out at full speed, from the first
// packet of the connection.
func (b *benchmark) linkDrain(ctx context.Context, f *farSide, office lab.Office) error {
	site, err := b.site(ctx, "link-drain", lab.SiteOptions{Far: f.host, Reach: []string{farAddress}})
	if err != nil {
		return err
	}
	defer site.Close()
	// The collector shows where it would be, then goes: readings pile up.
	if err := site.StartCollector(ctx); err != nil {
		return err
	}
	if err := site.Collector.Stop(ctx); err != nil {
		return err
	}
	if err := site.StartGateway(ctx); err != nil {
		return err
	}
	messages := office.Minutes() * lab.Rooms
	load := lab.StartLoad(ctx, lab.LoadOptions{Address: site.Broker(), Feeds: []lab.Feed{office}, Window: window, Messages: messages})
	if err := load.Wait(ctx); err != nil {
		return err
	}
	before, err := f.link.Traffic()
	if err != nil {
		return err
	}
	if err := site.StartCollector(ctx); err != nil {
		return err
	}
	if err := site.AwaitEmpty(ctx); err != nil {
		return err
	}
	if err := settle(ctx); err != nil {
		return err
	}
	after, err := f.link.Traffic()
	if err != nil {
		return err
	}
	b.addTraffic("link", "drain", "Sluice, full-speed drain", after.Sub(before), messages)
	return site.Stop(ctx)
}

// linkMQTT measures the same messages one by one over MQTT with TLS.
func (b *benchmark) linkMQTT(ctx context.Context, f *farSide, office lab.Office) error {
	site, err := b.site(ctx, "link-mqtt", lab.SiteOptions{})
	if err != nil {
		return err
	}
	defer site.Close()
	address := net.JoinHostPort(farAddress, "8883")
	keys := site.CollectorKeys()
	broker, err := lab.StartMosquitto(ctx, lab.MosquittoOptions{Dir: b.dir, Name: "tls", Address: address, Keys: &keys, Host: f.host})
	if err != nil {
		return err
	}
	defer broker.Kill()
	config, err := clientTLS(site.GatewayKeys())
	if err != nil {
		return err
	}
	o := mqtt.NewClientOptions().AddBroker("tls://" + address).SetClientID("office").SetTLSConfig(config).SetKeepAlive(5 * time.Minute)
	client := mqtt.NewClient(o)
	defer client.Disconnect(250)
	if err := finished(client.Connect()); err != nil {
		return fmt.Errorf("connect to mosquitto: %w", err)
	}
	for _, c := range []struct {
		name, what string
		messages   uint64
		pause      bool
	}{
		{"single", "MQTT over TLS, one message after another", b.scale(60, 12), true},
		{"drain", "MQTT over TLS, full-speed drain", b.scale(office.Minutes()*lab.Rooms, 2000), false},
	} {
		if err := settle(ctx); err != nil {
			return err
		}
		before, err := f.link.Traffic()
		if err != nil {
			return err
		}
		var payload []byte
		for m := range c.messages {
			var topic string
			topic, payload = office.Compose(payload[:0], m)
			if err := finished(client.Publish(topic, 1, false, payload)); err != nil {
				return fmt.Errorf("publish to mosquitto: %w", err)
			}
			if c.pause {
				if err := settle(ctx); err != nil {
					return err
				}
			}
		}
		after, err := f.link.Traffic()
		if err != nil {
			return err
		}
		b.addTraffic("mqtt", c.name, c.what, after.Sub(before), c.messages)
	}
	return nil
}

// finished waits for an MQTT operation.
func finished(t mqtt.Token) error {
	if !t.WaitTimeout(10 * time.Second) {
		return errors.New("no answer within 10 s")
	}
	return t.Error()
}

// clientTLS is the configuration of a client with a certificate.
func clientTLS(keys lab.Keys) (*tls.Config, error) {
	pem, err := os.ReadFile(keys.CA)
	if err != nil {
		return nil, fmt.Errorf("read keys: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("read keys: no certificate in %s", keys.CA)
	}
	own, err := tls.LoadX509KeyPair(keys.Cert, keys.Key)
	if err != nil {
		return nil, fmt.Errorf("read keys: %w", err)
	}
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}, ServerName: lab.ServerName, MinVersion: tls.VersionTLS13}, nil
}
