package broker

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/mochi-mqtt/server/v2/packets"
)

func TestRetainedSurvivesRestart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "retained")
	run := func(f func(b *Broker)) {
		t.Run("run", func(t *testing.T) {
			f(start(t, Options{Sink: newGroupSink(t, 0), RetainedFile: file}))
		})
	}
	run(func(b *Broker) {
		c := dial(t, b, 5, "sensor")
		pk := retain(publish(1, 1, "a/b", "kept"))
		pk.Properties.User = []packets.UserProperty{{Key: "k", Val: "v"}}
		pk.Properties.PayloadFormat, pk.Properties.PayloadFormatFlag = 1, true
		c.send(pk, retain(publish(2, 1, "removed", "x")), retain(publish(3, 1, "removed", "")))
		for id := range uint16(3) {
			c.expect(packets.Puback, id+1)
		}
		c.expectQuiet()
	})
	run(func(b *Broker) {
		c := dial(t, b, 5, "reader")
		c.subscribe(packets.Subscription{Filter: "#", Qos: 1})
		pk := c.expectMessage("kept")
		if !pk.FixedHeader.Retain || pk.FixedHeader.Qos != 1 || pk.Properties.PayloadFormat != 1 ||
			len(pk.Properties.User) != 1 || pk.Properties.User[0].Val != "v" {
			t.Errorf("after a restart: got %+v %+v", pk.FixedHeader, pk.Properties)
		}
		c.expectQuiet()
		if s := b.Stats(); s.Retained != 1 || s.RetainedBytes != len("a/bkept") {
			t.Errorf("got %d messages, %d bytes, want 1 and 7", s.Retained, s.RetainedBytes)
		}
	})
	left, err := filepath.Glob(file + "?*")
	if err != nil || len(left) > 0 {
		t.Errorf("files left beside it: %q, %v", left, err)
	}
}

// F11's kind: a damaged file is set aside, reported, and the broker starts.
func TestRetainedFileDamaged(t *testing.T) {
	good, err := encodeRetained([]retainedMessage{{Topic: "t", Payload: []byte("x"), Version: 4}})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"empty":     {},
		"zeroes":    make([]byte, 4096),
		"truncated": good[:len(good)-5],
		"bit flip":  bytes.Replace(good, []byte(`"topic"`), []byte(`"topib"`), 1),
		"foreign":   []byte("sluice-retained 2 00000000\n"),
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "retained")
			if err := os.WriteFile(file, data, 0o600); err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			b := start(t, Options{Sink: newGroupSink(t, 0), RetainedFile: file, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if n := b.Stats().Retained; n != 0 {
				t.Errorf("messages: got %d, want 0", n)
			}
			aside, _ := filepath.Glob(file + ".damaged-*")
			if len(aside) != 1 {
				t.Fatalf("set aside: got %q, want one file", aside)
			}
			if got, _ := os.ReadFile(aside[0]); !bytes.Equal(got, data) {
				t.Error("the file set aside is not the damaged one")
			}
			if !strings.Contains(log.String(), "set aside") {
				t.Errorf("log does not tell: %s", log.String())
			}
		})
	}
}

// What is retained has a limit; beyond it a message is still stored and
// delivered.
func TestRetainedIsBounded(t *testing.T) {
	sink := newGroupSink(t, 0)
	b := start(t, Options{Sink: sink})
	for i := range retainedMaximum {
		b.retained.put(retainedMessage{Topic: fmt.Sprint("old/", i), Payload: []byte("x")})
	}
	sub := dial(t, b, 4, "reader")
	sub.subscribe(packets.Subscription{Filter: "#"})
	c := dial(t, b, 4, "sensor")
	c.send(retain(publish(1, 1, "new", "one too many")))
	c.expect(packets.Puback, 1)
	sub.expectMessage("one too many")
	sink.awaitValues(t, "one too many")
	if s := b.Stats(); s.Unretained != 1 || s.Retained != retainedMaximum {
		t.Errorf("got unretained %d, retained %d, want 1 and %d", s.Unretained, s.Retained, retainedMaximum)
	}
	if b.retained.admit("big", retainedBytesMaximum) {
		t.Error("a message of the whole limit: got admitted")
	}
	if !b.retained.admit("old/1", 5) || !b.retained.admit("new", 0) {
		t.Error("replacing and removing: got refused")
	}
}

func FuzzDecodeRetained(f *testing.F) {
	good, err := encodeRetained([]retainedMessage{
		{Topic: "t", Payload: []byte("x"), Version: 4},
		{Topic: "a/b", Payload: []byte{0, 255}, QoS: 2, Version: 5, Expiry: 1, User: []packets.UserProperty{{Key: "k", Val: "v"}}},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:40])
	f.Add([]byte("sluice-retained 1 00000000\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		ms, err := decodeRetained(data)
		if err != nil {
			return
		}
		again, err := encodeRetained(ms)
		if err != nil {
			t.Fatal(err)
		}
		back, err := decodeRetained(again)
		if err != nil || !reflect.DeepEqual(back, ms) {
			t.Errorf("got %+v, %v, want %+v", back, err, ms)
		}
	})
}
