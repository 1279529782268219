package lab

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Rooms is how many rooms the office recording is played as: each room has its
// own stretch of it.
const Rooms = 20

// captureShare is how many messages of the laboratory capture go out in a
// minute of the office recording; that is its own speed.
const captureShare = 12

// MinuteMessages is how many messages of a Replay make one recorded minute.
const MinuteMessages = Rooms + captureShare

// Replay is an endless feed of recorded sensor data: 20 office rooms once a
// minute as Zigbee2MQTT devices, and the messages of a laboratory in between.
type Replay struct {
	Office  Office
	capture []capturedMessage
}

type capturedMessage struct {
	Topic   string `json:"topic"`
	Payload string `json:"payload"`
}

// Office is the office recording: for each minute the time and the fields of
// its payload, as they were written.
type Office struct {
	names []string
	rows  [][]string
	// Times says whether messages carry the recorded time as last_seen.
	Times bool
}

// officeNames are the fields of a room's payload, for the columns of the file
// after its first.
var officeNames = []string{"temperature", "humidity", "illuminance", "co2", "humidity_ratio", "occupancy"}

// LoadReplay reads the recordings in a folder.
func LoadReplay(dir string) (*Replay, error) {
	r := &Replay{}
	var err error
	if r.Office, err = LoadOffice(dir); err != nil {
		return nil, err
	}
	r.Office.Times = true
	path := filepath.Join(dir, "lab-capture.ndjson")
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read recording: %w", err)
	}
	lines := bufio.NewScanner(bytes.NewReader(b))
	for lines.Scan() {
		var m capturedMessage
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			return nil, fmt.Errorf("read recording %s: %w", path, err)
		}
		r.capture = append(r.capture, m)
	}
	if len(r.capture) == 0 {
		return nil, fmt.Errorf("read recording %s: it is empty", path)
	}
	return r, nil
}

// LoadOffice reads the office recording in a folder.
func LoadOffice(dir string) (Office, error) {
	o := Office{names: officeNames}
	path := filepath.Join(dir, "office-minutes.csv.gz")
	f, err := os.Open(path)
	if err != nil {
		return o, fmt.Errorf("read recording: %w", err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return o, fmt.Errorf("read recording %s: %w", path, err)
	}
	lines := csv.NewReader(z)
	lines.FieldsPerRecord = 1 + len(officeNames)
	if _, err := lines.Read(); err != nil { // the columns' titles
		return o, fmt.Errorf("read recording %s: %w", path, err)
	}
	for {
		row, err := lines.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			return o, fmt.Errorf("read recording %s: %w", path, err)
		}
		at, err := time.Parse(time.DateTime, row[0])
		if err != nil {
			return o, fmt.Errorf("read recording %s: %w", path, err)
		}
		row[0] = at.Format(time.RFC3339)
		o.rows = append(o.rows, row)
	}
	if len(o.rows) < Rooms {
		return o, fmt.Errorf("read recording %s: it is too short", path)
	}
	return o, nil
}

// Minutes is how many minutes play every row of the recording once.
func (o Office) Minutes() uint64 { return uint64(len(o.rows) / Rooms) }

// row returns what a room reports in a minute: the time and the literals.
func (o Office) row(room, minute uint64) []string {
	return o.rows[(room*o.Minutes()+minute)%uint64(len(o.rows))]
}

// Compose implements Feed: message m is of room m % Rooms.
func (o Office) Compose(dst []byte, m uint64) (string, []byte) {
	room := m % Rooms
	row := o.row(room, m/Rooms)
	for i, name := range o.names {
		if i == 0 {
			dst = append(dst, '{')
		} else {
			dst = append(dst, ',')
		}
		dst = strconv.AppendQuote(dst, name)
		dst = append(dst, ':')
		dst = append(dst, row[1+i]...)
	}
	if o.Times {
		dst = append(dst, `,"last_seen":`...)
		dst = strconv.AppendQuote(dst, row[0])
	}
	return "zigbee2mqtt/" + roomName(room), append(dst, '}')
}

func roomName(room uint64) string { return fmt.Sprintf("office-%02d", room+1) }

// Compose implements Feed.
func (r *Replay) Compose(dst []byte, m uint64) (string, []byte) {
	minute, slot := m/MinuteMessages, m%MinuteMessages
	if slot < Rooms {
		return r.Office.Compose(dst, minute*Rooms+slot)
	}
	c := r.captured(minute, slot)
	return c.Topic, append(dst, c.Payload...)
}

func (r *Replay) captured(minute, slot uint64) capturedMessage {
	return r.capture[(minute*captureShare+slot-Rooms)%uint64(len(r.capture))]
}
