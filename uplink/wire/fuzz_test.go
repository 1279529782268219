package wire

import (
	"bytes"
	"io"
	"reflect"
	"testing"
)

// FuzzReader feeds arbitrary bytes to the reader and every decoder; whatever
// decodes must survive being encoded and decoded again.
func FuzzReader(f *testing.F) {
	var all []byte
	for _, v := range vectors() {
		f.Add(v.bytes)
		all = append(all, v.bytes...)
	}
	f.Add(all)
	f.Fuzz(func(t *testing.T, in []byte) {
		r := NewReader(bytes.NewReader(in), 1<<16)
		for {
			typ, body, err := r.Next()
			if err != nil {
				return
			}
			switch typ {
			case TypeHello:
				again(t, body, DecodeHello, AppendHello)
			case TypeWelcome:
				again(t, body, DecodeWelcome, AppendWelcome)
			case TypeReject:
				again(t, body, DecodeReject, AppendReject)
			case TypeData:
				again(t, body, func(b []byte) (Data, error) { return DecodeData(b, nil) }, AppendData)
			case TypeAck:
				again(t, body, DecodeAck, AppendAck)
			case TypePing:
				again(t, body, DecodeNumber, AppendPing)
			case TypeClose:
				again(t, body, DecodeClose, AppendClose)
			case TypeTunnelRequest:
				again(t, body, DecodeTunnelRequest, AppendTunnelRequest)
			case TypeTunnelReply:
				again(t, body, DecodeTunnelReply, AppendTunnelReply)
			}
		}
	})
}

func again[M any](t *testing.T, body []byte, decode func([]byte) (M, error), encode func([]byte, M) []byte) {
	m, err := decode(body)
	if err != nil {
		return
	}
	_, body, err = NewReader(bytes.NewReader(encode(nil, m)), 1<<20).Next()
	if err != nil {
		t.Fatalf("%+v encoded: %v", m, err)
	}
	if got, err := decode(body); err != nil || !reflect.DeepEqual(got, m) {
		t.Fatalf("again: got %+v, %v, want %+v", got, err, m)
	}
}

// FuzzDecompressor feeds arbitrary bytes as a compressed stream; no input may
// make it panic or keep much more than its window.
func FuzzDecompressor(f *testing.F) {
	c, err := NewCompressor()
	if err != nil {
		f.Fatal(err)
	}
	var all []byte
	for _, v := range vectors() {
		out, err := c.Compress(v.bytes)
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, out...)
		f.Add(append([]byte(nil), all...))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		d, err := NewDecompressor(bytes.NewReader(in))
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		io.Copy(io.Discard, io.LimitReader(d, 4<<20))
	})
}
