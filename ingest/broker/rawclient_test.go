package broker

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"
)

// rawClient speaks MQTT packet by packet, to do what real clients do only when
// something goes wrong.
type rawClient struct {
	t       testing.TB
	conn    net.Conn
	in      *bufio.Reader
	version byte
	connack packets.Packet
}

type connectOption func(*packets.Packet)

func keepSession(pk *packets.Packet) {
	pk.Connect.Clean = false
	pk.Properties.SessionExpiryInterval, pk.Properties.SessionExpiryIntervalFlag = 3600, true
}

func withUser(name, password string) connectOption {
	return func(pk *packets.Packet) {
		pk.Connect.UsernameFlag, pk.Connect.Username = true, []byte(name)
		pk.Connect.PasswordFlag, pk.Connect.Password = true, []byte(password)
	}
}

func withWill(topic, payload string, qos byte, retain bool, delay uint32) connectOption {
	return func(pk *packets.Packet) {
		pk.Connect.WillFlag, pk.Connect.WillTopic, pk.Connect.WillPayload = true, topic, []byte(payload)
		pk.Connect.WillQos, pk.Connect.WillRetain = qos, retain
		pk.Connect.WillProperties.WillDelayInterval = delay
	}
}

func dialRaw(t testing.TB, addr net.Addr, version byte, id string, options ...connectOption) *rawClient {
	t.Helper()
	nc, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	c := &rawClient{t: t, conn: nc, in: bufio.NewReader(nc), version: version}
	pk := packets.Packet{
		FixedHeader:     packets.FixedHeader{Type: packets.Connect},
		ProtocolVersion: version,
		Connect: packets.ConnectParams{
			ProtocolName: []byte("MQTT"), ClientIdentifier: id, Clean: true, Keepalive: 60,
		},
	}
	for _, o := range options {
		o(&pk)
	}
	c.send(pk)
	c.connack = c.receive()
	if c.connack.FixedHeader.Type != packets.Connack {
		t.Fatalf("connect %s: got packet type %d, want CONNACK", id, c.connack.FixedHeader.Type)
	}
	return c
}

// dial connects and expects to be accepted.
func dial(t testing.TB, b *Broker, version byte, id string, options ...connectOption) *rawClient {
	t.Helper()
	c := dialRaw(t, b.Addrs()[0], version, id, options...)
	if c.connack.ReasonCode != 0 {
		t.Fatalf("connect %s: got reason code %#x, want 0", id, c.connack.ReasonCode)
	}
	return c
}

func encodePacket(t testing.TB, version byte, pk packets.Packet) []byte {
	pk.ProtocolVersion = version
	pk.Mods.AllowResponseInfo = true
	var buf bytes.Buffer
	var err error
	switch pk.FixedHeader.Type {
	case packets.Connect:
		err = pk.ConnectEncode(&buf)
	case packets.Publish:
		err = pk.PublishEncode(&buf)
	case packets.Puback, packets.Pubrec, packets.Pubcomp:
		err = pk.PubackEncode(&buf)
	case packets.Pubrel:
		pk.FixedHeader.Qos = 1
		err = pk.PubrelEncode(&buf)
	case packets.Subscribe:
		pk.FixedHeader.Qos = 1
		err = pk.SubscribeEncode(&buf)
	case packets.Unsubscribe:
		pk.FixedHeader.Qos = 1
		err = pk.UnsubscribeEncode(&buf)
	case packets.Pingreq:
		err = pk.PingreqEncode(&buf)
	case packets.Disconnect:
		err = pk.DisconnectEncode(&buf)
	default:
		t.Fatalf("packet type %d not supported", pk.FixedHeader.Type)
	}
	if err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func (c *rawClient) send(pks ...packets.Packet) {
	c.t.Helper()
	var out []byte
	for _, pk := range pks {
		out = append(out, encodePacket(c.t, c.version, pk)...)
	}
	c.conn.SetWriteDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.conn.Write(out); err != nil {
		c.t.Fatal(err)
	}
}

// read returns the next packet or an error.
func (c *rawClient) read(timeout time.Duration) (pk packets.Packet, err error) {
	c.conn.SetReadDeadline(time.Now().Add(timeout))
	first, err := c.in.ReadByte()
	if err != nil {
		return pk, err
	}
	if err := pk.FixedHeader.Decode(first); err != nil {
		return pk, err
	}
	if pk.FixedHeader.Remaining, _, err = packets.DecodeLength(c.in); err != nil {
		return pk, err
	}
	body := make([]byte, pk.FixedHeader.Remaining)
	if _, err := io.ReadFull(c.in, body); err != nil {
		return pk, err
	}
	pk.ProtocolVersion = c.version
	switch pk.FixedHeader.Type {
	case packets.Connack:
		err = pk.ConnackDecode(body)
	case packets.Publish:
		err = pk.PublishDecode(body)
	case packets.Puback, packets.Pubrec, packets.Pubrel, packets.Pubcomp:
		err = pk.PubackDecode(body)
	case packets.Suback:
		err = pk.SubackDecode(body)
	case packets.Unsuback:
		err = pk.UnsubackDecode(body)
	case packets.Disconnect:
		err = pk.DisconnectDecode(body)
	}
	return pk, err
}

func (c *rawClient) receive() packets.Packet {
	c.t.Helper()
	pk, err := c.read(10 * time.Second)
	if err != nil {
		c.t.Fatalf("read packet: %v", err)
	}
	return pk
}

// expect reads a packet of the type, and for acknowledgements of the
// identifier.
func (c *rawClient) expect(kind byte, id uint16) packets.Packet {
	c.t.Helper()
	pk := c.receive()
	if pk.FixedHeader.Type != kind || pk.PacketID != id {
		c.t.Fatalf("got %s %d (reason %#x), want %s %d", packets.PacketNames[pk.FixedHeader.Type],
			pk.PacketID, pk.ReasonCode, packets.PacketNames[kind], id)
	}
	return pk
}

// expectMessage reads a PUBLISH with the payload and acknowledges it.
func (c *rawClient) expectMessage(payload string) packets.Packet {
	c.t.Helper()
	pk := c.receive()
	if pk.FixedHeader.Type != packets.Publish || string(pk.Payload) != payload {
		c.t.Fatalf("got %s %q, want Publish %q", packets.PacketNames[pk.FixedHeader.Type], pk.Payload, payload)
	}
	if pk.FixedHeader.Qos == 1 {
		c.send(packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Puback}, PacketID: pk.PacketID})
	}
	return pk
}

// expectQuiet proves with a ping that nothing had been sent before its answer.
func (c *rawClient) expectQuiet() {
	c.t.Helper()
	c.send(packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Pingreq}})
	c.expect(packets.Pingresp, 0)
}

// expectEnd waits for the broker to close the connection.
func (c *rawClient) expectEnd() {
	c.t.Helper()
	for {
		pk, err := c.read(10 * time.Second)
		if err == nil && pk.FixedHeader.Type == packets.Disconnect {
			continue
		}
		if err == nil {
			c.t.Fatalf("got %s %d, want the end of the connection", packets.PacketNames[pk.FixedHeader.Type], pk.PacketID)
		}
		if ne, ok := err.(net.Error); ok && ne.Timeout() {
			c.t.Fatal("connection still open after 10 s")
		}
		return
	}
}

func publish(id uint16, qos byte, topic, payload string) packets.Packet {
	return packets.Packet{
		FixedHeader: packets.FixedHeader{Type: packets.Publish, Qos: qos},
		PacketID:    id, TopicName: topic, Payload: []byte(payload),
	}
}

func again(pk packets.Packet) packets.Packet {
	pk.FixedHeader.Dup = true
	return pk
}

func retain(pk packets.Packet) packets.Packet {
	pk.FixedHeader.Retain = true
	return pk
}

func pubrel(id uint16) packets.Packet {
	return packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Pubrel}, PacketID: id}
}

// subscribe subscribes and returns the reason codes.
func (c *rawClient) subscribe(subs ...packets.Subscription) []byte {
	c.t.Helper()
	c.send(packets.Packet{
		FixedHeader: packets.FixedHeader{Type: packets.Subscribe}, PacketID: 60000, Filters: subs,
	})
	return c.expect(packets.Suback, 60000).ReasonCodes
}
