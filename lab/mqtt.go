package lab

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// The few MQTT 3.1.1 packets that a publisher or a counting subscriber needs
// (OASIS MQTT 3.1.1, chapter 3), as first bytes.
const (
	mqttConnect    = 0x10
	mqttConnack    = 0x20
	mqttPublish    = 0x30
	mqttPuback     = 0x40
	mqttSubscribe  = 0x82
	mqttSuback     = 0x90
	mqttDisconnect = 0xe0

	mqttDup = 0x08
)

// maxPacket bounds what a broker may send to the lab.
const maxPacket = 1 << 20

// Dialer opens a connection to a broker; net.Dialer's DialContext is one.
type Dialer func(ctx context.Context, network, address string) (net.Conn, error)

// mqttConn is a connection to a broker after CONNACK.
type mqttConn struct {
	net.Conn
	r    *bufio.Reader
	body []byte
}

// dialMQTT connects with a 3.1.1 client. With clean unset the broker is asked
// to keep the session.
func dialMQTT(ctx context.Context, dial Dialer, address, client string, clean bool) (*mqttConn, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := dial(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("connect to broker %s: %w", address, err)
	}
	m := &mqttConn{Conn: c, r: bufio.NewReaderSize(c, 64<<10)}
	if err := m.greet(client, clean); err != nil {
		c.Close()
		return nil, fmt.Errorf("connect to broker %s as %s: %w", address, client, err)
	}
	return m, nil
}

func (m *mqttConn) greet(client string, clean bool) error {
	flags := byte(0)
	if clean {
		flags = 0x02
	}
	// The keepalive is longer than any experiment's silence.
	const keepalive = 3600 // seconds
	body := []byte{0, 4, 'M', 'Q', 'T', 'T', 4, flags, keepalive >> 8, keepalive & 0xff, 0, 0}
	binary.BigEndian.PutUint16(body[len(body)-2:], uint16(len(client)))
	body = append(body, client...)
	// A gateway that has just been started may be slow to answer, one that is
	// cut off never does: both end here.
	if err := m.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	if _, err := m.Write(appendPacket(nil, mqttConnect, body)); err != nil {
		return err
	}
	kind, body, err := m.next()
	if err != nil {
		return err
	}
	if kind != mqttConnack || len(body) != 2 {
		return fmt.Errorf("packet %#x instead of CONNACK", kind)
	}
	if body[1] != 0 {
		return fmt.Errorf("refused with code %d", body[1])
	}
	return m.SetDeadline(time.Time{})
}

// subscribe asks for topic at a quality of service and waits for the answer.
func (m *mqttConn) subscribe(topic string, qos byte) error {
	body := []byte{0, 1, byte(len(topic) >> 8), byte(len(topic))}
	body = append(append(body, topic...), qos)
	if _, err := m.Write(appendPacket(nil, mqttSubscribe, body)); err != nil {
		return fmt.Errorf("subscribe to %s: %w", topic, err)
	}
	kind, body, err := m.next()
	if err != nil {
		return fmt.Errorf("subscribe to %s: %w", topic, err)
	}
	if kind != mqttSuback || len(body) != 3 || body[2] > 2 {
		return fmt.Errorf("subscribe to %s: refused", topic)
	}
	return nil
}

// next reads one packet: its first byte and its body, which is valid until the
// next call.
func (m *mqttConn) next() (byte, []byte, error) {
	kind, err := m.r.ReadByte()
	if err != nil {
		return 0, nil, err
	}
	size, err := binary.ReadUvarint(m.r)
	if err != nil {
		return 0, nil, err
	}
	if size > maxPacket {
		return 0, nil, fmt.Errorf("packet of %d bytes is over the limit of %d", size, maxPacket)
	}
	if cap(m.body) < int(size) {
		m.body = make([]byte, size)
	}
	m.body = m.body[:size]
	if _, err := io.ReadFull(m.r, m.body); err != nil {
		return 0, nil, err
	}
	return kind, m.body, nil
}

// buffered reports whether the start of another packet has arrived already.
func (m *mqttConn) buffered() bool { return m.r.Buffered() > 0 }

func appendPacket(dst []byte, kind byte, body []byte) []byte {
	dst = append(dst, kind)
	dst = binary.AppendUvarint(dst, uint64(len(body)))
	return append(dst, body...)
}

// appendPublish appends a QoS 1 PUBLISH.
func appendPublish(dst []byte, topic string, payload []byte, id uint16, dup bool) []byte {
	kind := byte(mqttPublish | 0x02)
	if dup {
		kind |= mqttDup
	}
	dst = append(dst, kind)
	dst = binary.AppendUvarint(dst, uint64(2+len(topic)+2+len(payload)))
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(topic)))
	dst = append(dst, topic...)
	dst = binary.BigEndian.AppendUint16(dst, id)
	return append(dst, payload...)
}

var errNotPuback = errors.New("PUBACK is not 2 bytes long")

func pubackID(body []byte) (uint16, error) {
	if len(body) != 2 {
		return 0, errNotPuback
	}
	return binary.BigEndian.Uint16(body), nil
}
