package broker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"

	"sluice/atomicfile"
)

const (
	retainedMaximum      = 10_000  // messages
	retainedBytesMaximum = 4 << 20 // of topics and payloads; the library has a copy
	// retainedInterval is how often the file is written at most: SD cards wear.
	// A power cut loses what was retained since; sensors retain their state
	// again when it changes.
	retainedInterval = time.Minute
	retainedHeader   = "sluice-retained 1 "
)

// retained bounds the messages that the library retains and keeps them across
// restarts in a file that is replaced as a whole: a line with the format's
// version and the CRC-32C of what follows, then one JSON object a message.
type retained struct {
	path string // empty: no file
	log  *slog.Logger
	wake chan struct{} // capacity 1: changed since the last save

	saving sync.Mutex // one save at a time

	mu         sync.Mutex // guards what follows
	messages   map[string]retainedMessage
	bytes      int
	dirty      bool
	unretained uint64
}

// retainedMessage is a message as the file holds it.
type retainedMessage struct {
	Topic       string                 `json:"topic"`
	Payload     []byte                 `json:"payload"`
	QoS         byte                   `json:"qos,omitempty"`
	Version     byte                   `json:"mqtt"` // the publisher's protocol version
	Origin      string                 `json:"from,omitempty"`
	Created     int64                  `json:"created"`          // seconds since 1970
	Expiry      int64                  `json:"expiry,omitempty"` // the same; 0: never
	ContentType string                 `json:"contentType,omitempty"`
	Response    string                 `json:"responseTopic,omitempty"`
	Correlation []byte                 `json:"correlation,omitempty"`
	IsText      bool                   `json:"text,omitempty"` // payload format indicator 1
	User        []packets.UserProperty `json:"user,omitempty"`
}

func (m retainedMessage) size() int { return len(m.Topic) + len(m.Payload) }

// openRetained reads the file. A damaged one is renamed to a dated name beside
// it and reported; only if that fails is there an error.
func openRetained(path string, log *slog.Logger) (*retained, error) {
	r := &retained{path: path, log: log, wake: make(chan struct{}, 1), messages: map[string]retainedMessage{}}
	if path == "" {
		return r, nil
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	var ms []retainedMessage
	if err == nil {
		ms, err = decodeRetained(data)
	}
	if err != nil {
		aside := path + ".damaged-" + time.Now().UTC().Format("20060102T150405.000")
		if e := os.Rename(path, aside); e != nil {
			return nil, fmt.Errorf("retained messages %s: %w; it cannot be set aside: %w; remove it", path, err, e)
		}
		log.Error("retained messages unreadable, set aside; devices retain their state again when it changes",
			"file", aside, "error", err)
		return r, nil
	}
	for _, m := range ms {
		r.put(m)
	}
	return r, nil
}

// restore hands what was read to the library.
func (r *retained) restore(topics *mqtt.TopicsIndex, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for topic, m := range r.messages {
		if m.Expiry > 0 && m.Expiry < now.Unix() {
			r.remove(topic)
			continue
		}
		pk := packets.Packet{
			FixedHeader:     packets.FixedHeader{Type: packets.Publish, Qos: m.QoS, Retain: true},
			TopicName:       m.Topic,
			Payload:         m.Payload,
			Origin:          m.Origin,
			Created:         m.Created,
			Expiry:          m.Expiry,
			ProtocolVersion: m.Version,
			Properties: packets.Properties{
				ContentType:       m.ContentType,
				ResponseTopic:     m.Response,
				CorrelationData:   m.Correlation,
				PayloadFormatFlag: m.IsText,
				User:              m.User,
			},
		}
		if m.IsText {
			pk.Properties.PayloadFormat = 1
		}
		topics.RetainMessage(pk)
	}
}

// admit reports whether a message may be retained; one too many is delivered
// and stored like any other, but a later subscriber does not get it.
func (r *retained) admit(topic string, payload int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	old, exists := r.messages[topic]
	grown := r.bytes - old.size() + len(topic) + payload
	if payload == 0 || grown <= retainedBytesMaximum && (exists || len(r.messages) < retainedMaximum) {
		return true
	}
	r.unretained++
	r.log.Warn("mqtt message not retained: too many are", "topic", topic,
		"messages", len(r.messages), "bytes", r.bytes)
	return false
}

// changed is called by the library when it has retained pk or, if its payload
// is empty, has removed what it retained.
func (r *retained) changed(pk packets.Packet, _ int64) {
	if strings.HasPrefix(pk.TopicName, mqtt.SysPrefix) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(pk.Payload) == 0 {
		r.remove(pk.TopicName)
	} else {
		r.put(retainedMessage{
			Topic:       pk.TopicName,
			Payload:     bytes.Clone(pk.Payload),
			QoS:         pk.FixedHeader.Qos,
			Version:     pk.ProtocolVersion,
			Origin:      pk.Origin,
			Created:     pk.Created,
			Expiry:      pk.Expiry,
			ContentType: pk.Properties.ContentType,
			Response:    pk.Properties.ResponseTopic,
			Correlation: bytes.Clone(pk.Properties.CorrelationData),
			IsText:      pk.Properties.PayloadFormatFlag && pk.Properties.PayloadFormat == 1,
			User:        pk.Properties.User,
		})
	}
	r.touch()
}

// expired is called by the library when it has removed a message.
func (r *retained) expired(topic string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.remove(topic)
	r.touch()
}

func (r *retained) put(m retainedMessage) {
	r.remove(m.Topic)
	r.messages[m.Topic] = m
	r.bytes += m.size()
}

func (r *retained) remove(topic string) {
	r.bytes -= r.messages[topic].size()
	delete(r.messages, topic)
}

func (r *retained) touch() {
	r.dirty = true
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run saves the messages some time after they have changed, until ctx ends.
func (r *retained) run(ctx context.Context) {
	if r.path == "" {
		return
	}
	for {
		select {
		case <-r.wake:
		case <-ctx.Done():
			return
		}
		wait := time.NewTimer(retainedInterval)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return
		}
		if err := r.save(); err != nil {
			r.log.Warn("retained messages not saved, tried again in a minute", "error", err)
			r.mu.Lock()
			r.touch()
			r.mu.Unlock()
		}
	}
}

// save replaces the file if there is anything new.
func (r *retained) save() error {
	r.saving.Lock()
	defer r.saving.Unlock()
	r.mu.Lock()
	if r.path == "" || !r.dirty {
		r.mu.Unlock()
		return nil
	}
	r.dirty = false
	ms := make([]retainedMessage, 0, len(r.messages))
	for _, m := range r.messages {
		ms = append(ms, m)
	}
	r.mu.Unlock()

	data, err := encodeRetained(ms)
	if err == nil {
		err = atomicfile.Write(r.path, data)
	}
	if err != nil {
		r.mu.Lock()
		r.dirty = true
		r.mu.Unlock()
		return fmt.Errorf("retained messages %s: %w", r.path, err)
	}
	return nil
}

func (r *retained) stats() (messages, bytes int, unretained uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.messages), r.bytes, r.unretained
}

func encodeRetained(ms []retainedMessage) ([]byte, error) {
	var body bytes.Buffer
	lines := json.NewEncoder(&body)
	lines.SetEscapeHTML(false)
	for _, m := range ms {
		if err := lines.Encode(m); err != nil {
			return nil, err
		}
	}
	sum := crc32.Checksum(body.Bytes(), crc32.MakeTable(crc32.Castagnoli))
	return append(fmt.Appendf(nil, "%s%08x\n", retainedHeader, sum), body.Bytes()...), nil
}

// decodeRetained reads what encodeRetained wrote.
func decodeRetained(data []byte) ([]retainedMessage, error) {
	header, body, _ := bytes.Cut(data, []byte("\n"))
	sum, ours := bytes.CutPrefix(header, []byte(retainedHeader))
	if !ours {
		return nil, errors.New("the first line is not that of a file of this version")
	}
	if want := fmt.Sprintf("%08x", crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli))); want != string(sum) {
		return nil, fmt.Errorf("checksum %s, not %q as the first line says", want, sum)
	}
	var ms []retainedMessage
	lines := bufio.NewScanner(bytes.NewReader(body))
	lines.Buffer(nil, len(body)+1)
	for lines.Scan() {
		var m retainedMessage
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			return nil, fmt.Errorf("message %d: %w", len(ms)+1, err)
		}
		if m.Topic == "" || len(m.Payload) == 0 || m.QoS > 2 || !mqtt.IsValidFilter(m.Topic, true) {
			return nil, fmt.Errorf("message %d: not a retained message", len(ms)+1)
		}
		ms = append(ms, m)
	}
	return ms, lines.Err()
}
