package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"sluice/reading"
)

var update = flag.Bool("update", false, "write the golden vectors anew")

// vectors are messages of every type with their decoder.
func vectors() []vector {
	hello := Hello{Version: 1, Gateway: "gw-7", Session: SessionID{1, 2, 3, 15: 0xff}, Epoch: 1<<63 + 5, Carrier: "tcp", Keepalive: 90000}
	welcome := Welcome{Version: 1, MaxFrame: 4 << 20, MaxUnacked: 4 << 20, Wall: 1764536400123456789,
		Lanes: [reading.Lanes]Resume{{0, 0}, {500, 620}, {1 << 40, 1 << 40}}, Instance: 0x0102030405060708}
	data := Data{Lane: reading.Live, Prev: 620, Through: 800, Segments: []reading.Segment{
		{First: 621, Count: 2, Data: []byte("first")}, {First: 700, Count: 65535, Data: []byte("second")}}}
	data.Through = data.Segments[1].Last() + 3
	skip := Data{Lane: reading.Backfill, Prev: 10, Through: 20}
	ack := Ack{Lanes: []LaneAck{{Lane: reading.Alarm, Durable: 9},
		{Lane: reading.Live, Durable: 620, Received: []Range{{622, 630}, {640, 640}}}}}
	reject := Reject{Code: CodeBusy, Reason: "4096 sessions already", RetryAfter: 5000}
	closed := Close{Code: CodeSuperseded, Reason: "a newer session took over"}
	request := TunnelRequest{Gateway: "gw-7", Uplinks: []TunnelUplink{
		{Name: "wlan0", Key: TunnelKey{1, 31: 2}}, {Name: "enx0123456789ab", Key: TunnelKey{3, 31: 4}}}}
	reply := TunnelReply{Key: TunnelKey{5, 31: 6}, Port: 51820, Tunnels: []TunnelLease{
		{Local: netip.MustParsePrefix("10.213.0.2/32"), Remote: netip.MustParseAddr("10.213.0.1")},
		{Local: netip.MustParsePrefix("fd00::2/128"), Remote: netip.MustParseAddr("fd00::1")}}}
	number := func(b []byte) (any, error) { return DecodeNumber(b) }
	return []vector{
		{"hello", TypeHello, AppendHello(nil, hello), hello, func(b []byte) (any, error) { return DecodeHello(b) }},
		{"welcome", TypeWelcome, AppendWelcome(nil, welcome), welcome, func(b []byte) (any, error) { return DecodeWelcome(b) }},
		{"reject", TypeReject, AppendReject(nil, reject), reject, func(b []byte) (any, error) { return DecodeReject(b) }},
		{"data", TypeData, AppendData(nil, data), data, func(b []byte) (any, error) { return DecodeData(b, nil) }},
		{"skip", TypeData, AppendData(nil, skip), skip, func(b []byte) (any, error) { return DecodeData(b, nil) }},
		{"ack", TypeAck, AppendAck(nil, ack), ack, func(b []byte) (any, error) { return DecodeAck(b) }},
		{"ping", TypePing, AppendPing(nil, 77), uint64(77), number},
		{"pong", TypePong, AppendPong(nil, 1<<63), uint64(1 << 63), number},
		{"drain", TypeDrain, AppendDrain(nil), nil, func([]byte) (any, error) { return nil, nil }},
		{"close", TypeClose, AppendClose(nil, closed), closed, func(b []byte) (any, error) { return DecodeClose(b) }},
		{"tunnel-request", TypeTunnelRequest, AppendTunnelRequest(nil, request), request, func(b []byte) (any, error) { return DecodeTunnelRequest(b) }},
		{"tunnel-reply", TypeTunnelReply, AppendTunnelReply(nil, reply), reply, func(b []byte) (any, error) { return DecodeTunnelReply(b) }},
	}
}

type vector struct {
	name   string
	typ    Type
	bytes  []byte
	want   any
	decode func([]byte) (any, error)
}

// The bytes of version 1 never change: gateways and collectors of different
// ages meet.
func TestGolden(t *testing.T) {
	for _, v := range vectors() {
		t.Run(v.name, func(t *testing.T) {
			path := filepath.Join("testdata", v.name+".hex")
			if *update {
				if err := os.WriteFile(path, []byte(hex.EncodeToString(v.bytes)+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			want, err := hex.DecodeString(strings.TrimSpace(string(text)))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(v.bytes, want) {
				t.Errorf("encoded\n got %x\nwant %x", v.bytes, want)
			}
			typ, body, err := NewReader(bytes.NewReader(want), 1<<20).Next()
			if err != nil || typ != v.typ {
				t.Fatalf("next: type %d, %v, want type %d", typ, err, v.typ)
			}
			got, err := v.decode(body)
			if err != nil || !reflect.DeepEqual(got, v.want) {
				t.Errorf("decoded\n got %+v, %v\nwant %+v", got, err, v.want)
			}
		})
	}
}

// A newer peer may add fields to every message and messages that may be ignored.
func TestNewerPeer(t *testing.T) {
	for _, v := range vectors() {
		if len(v.bytes) < 3 || v.name == "hello" {
			continue
		}
		_, body, err := NewReader(bytes.NewReader(v.bytes), 1<<20).Next()
		if err != nil {
			t.Fatal(err)
		}
		got, err := v.decode(append(append([]byte(nil), body...), 0xfe, 0xff, 0x00))
		if err != nil || !reflect.DeepEqual(got, v.want) {
			t.Errorf("%s with fields of a later version: got %+v, %v", v.name, got, err)
		}
	}
	stream := append([]byte{4, byte(MayIgnore | 40), 1, 2, 3}, AppendPing(nil, 5)...)
	typ, _, err := NewReader(bytes.NewReader(stream), 100).Next()
	if typ != TypePing || err != nil {
		t.Errorf("after a message to be ignored: got type %d, %v", typ, err)
	}
	stream[1] = 40
	if _, _, err := NewReader(bytes.NewReader(stream), 100).Next(); !errors.Is(err, ErrUnknown) {
		t.Errorf("a message not to be ignored: got %v, want %v", err, ErrUnknown)
	}
}

func TestReaderFaults(t *testing.T) {
	ping := AppendPing(nil, 5)
	for _, c := range []struct {
		name string
		in   []byte
		want error
	}{
		{"nothing", nil, io.EOF},
		{"cut in the length", []byte{0x80}, io.ErrUnexpectedEOF},
		{"cut after the length", ping[:1], io.ErrUnexpectedEOF},
		{"cut in the body", ping[:2], io.ErrUnexpectedEOF},
		{"empty message", []byte{0}, ErrMalformed},
		{"endless length", bytes.Repeat([]byte{0x80}, 20), ErrMalformed},
		{"too long", []byte{101, byte(TypePing)}, ErrTooLong},
		{"huge", []byte{0xff, 0xff, 0xff, 0xff, 0x7f}, ErrTooLong},
	} {
		if _, _, err := NewReader(bytes.NewReader(c.in), 100).Next(); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
	}
}

// Sequence numbers that run over would move a lane to its end.
func TestDecodeBounds(t *testing.T) {
	top := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	for _, c := range []struct {
		name string
		body []byte
	}{
		{"lane", []byte{3, 0, 0, 0}},
		{"first runs over", join([]byte{0}, top, []byte{1, 0, 1, 0, 0})},
		{"no readings", []byte{0, 0, 1, 0, 0, 0, 0}},
		{"too many readings", []byte{0, 0, 1, 0, 0x80, 0x80, 0x04, 0, 0}},
		{"data longer than the message", []byte{0, 0, 1, 0, 1, 9, 0}},
		{"more segments than bytes", join([]byte{0, 0}, top)},
		{"skip runs over", join([]byte{0, 1, 0}, top)},
	} {
		if d, err := DecodeData(c.body, nil); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: got %+v, %v, want %v", c.name, d, err, ErrMalformed)
		}
	}
	if _, err := DecodeHello([]byte("GET / HTTP/1.1")); !errors.Is(err, ErrMagic) {
		t.Errorf("other protocol: got %v, want %v", err, ErrMagic)
	}
}
