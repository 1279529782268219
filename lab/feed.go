package lab

import (
	"fmt"
	"strconv"
)

// Feed composes one publisher's messages. Message m of a feed is always the
// same, so that it can be sent again and its readings can be checked later
// without keeping it.
type Feed interface {
	// Compose appends message m's payload to dst and returns its topic.
	Compose(dst []byte, m uint64) (topic string, payload []byte)
}

// Sensors is a feed of a few devices that take turns. Each device counts its
// messages in the field "n" without a gap; all other fields follow from the
// device and n. A payload is what Zigbee2MQTT sends for a climate sensor: about
// 115 bytes with six values.
type Sensors struct {
	devices []sensor
}

type sensor struct {
	name  string
	topic string
	seed  uint64
}

// SensorFields are the names of the values in a message of Sensors, in order.
var SensorFields = [...]string{"n", "device_temperature", "humidity", "illuminance", "linkquality", "temperature"}

// NewSensors returns the feed of publisher p with a number of devices, whose
// names are "lab-<p>-<device>".
func NewSensors(p, devices int) *Sensors {
	s := &Sensors{}
	for d := range devices {
		name := fmt.Sprintf("lab-%02d-%02d", p, d)
		s.devices = append(s.devices, sensor{name: name, topic: "zigbee2mqtt/" + name, seed: uint64(p)<<8 | uint64(d)})
	}
	return s
}

// Compose implements Feed.
func (s *Sensors) Compose(dst []byte, m uint64) (string, []byte) {
	d := &s.devices[m%uint64(len(s.devices))]
	n := m / uint64(len(s.devices))
	for f := range SensorFields {
		if f == 0 {
			dst = append(dst, '{')
		} else {
			dst = append(dst, ',')
		}
		dst = append(dst, '"')
		dst = append(dst, SensorFields[f]...)
		dst = append(dst, '"', ':')
		dst = d.appendValue(dst, f, n)
	}
	return d.topic, append(dst, '}')
}

// appendValue appends the literal of field f in message n of the device: values
// drift slowly and jitter in their last digits, as a sensor's do.
func (d *sensor) appendValue(dst []byte, f int, n uint64) []byte {
	jitter := (n + d.seed) * 0x9e3779b97f4a7c15 >> 32
	switch f {
	case 0:
		return strconv.AppendUint(dst, n, 10)
	case 1:
		return appendHundredths(dst, 2400+n/64%500+jitter%3)
	case 2:
		return appendHundredths(dst, 4000+n/32%2000+jitter%16)
	case 3:
		return strconv.AppendUint(dst, 1000+n/16%4000+jitter%8, 10)
	case 4:
		return strconv.AppendUint(dst, 100+jitter>>8%32, 10)
	default:
		return appendHundredths(dst, 2000+n/64%800+jitter>>4%4)
	}
}

// appendHundredths appends v/100 with both decimals, zeroes included.
func appendHundredths(dst []byte, v uint64) []byte {
	dst = strconv.AppendUint(dst, v/100, 10)
	return append(dst, '.', byte('0'+v/10%10), byte('0'+v%10))
}

// From returns feed without its first messages.
func From(feed Feed, first uint64) Feed { return shifted{feed, first} }

type shifted struct {
	feed  Feed
	first uint64
}

// Compose implements Feed.
func (s shifted) Compose(dst []byte, m uint64) (string, []byte) {
	return s.feed.Compose(dst, s.first+m)
}
