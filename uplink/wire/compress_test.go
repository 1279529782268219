package wire

import (
	"bytes"
	"io"
	"math/rand/v2"
	"testing"
)

// Every message is readable as soon as its bytes have arrived, and a small one
// that resembles an earlier one costs little.
func TestCompressFlushes(t *testing.T) {
	c, err := NewCompressor()
	if err != nil {
		t.Fatal(err)
	}
	in, out := io.Pipe()
	d, err := NewDecompressor(in)
	if err != nil {
		t.Fatal(err)
	}
	r := NewReader(d, 1<<20)
	rng := rand.New(rand.NewPCG(1, 2))
	text := []byte("kitchen/lamp bath/fan office/window temperature humidity light co2 occupancy")
	var sizes []int
	for i := range 50 {
		body := append([]byte(nil), text...)
		for range 40 {
			body = append(body, byte(rng.Uint32()))
		}
		msg := AppendClose(nil, Close{Reason: string(bytes.ToValidUTF8(body, []byte("?")))})
		packed, err := c.Compress(msg)
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, len(packed))
		go out.Write(bytes.Clone(packed)) // the pipe carries this message and no more
		if typ, _, err := r.Next(); typ != TypeClose || err != nil {
			t.Fatalf("message %d: type %d, %v", i, typ, err)
		}
	}
	t.Logf("bytes: first %d, later %v", sizes[0], sizes[1:8])
	if got := sizes[len(sizes)-1]; got >= sizes[0]-len(text)/2 {
		t.Errorf("a repeated message took %d bytes, the first %d: history is not used", got, sizes[0])
	}
}

// The least that a flush adds to a message that cannot shrink.
func TestCompressOverhead(t *testing.T) {
	c, err := NewCompressor()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Compress([]byte("start")); err != nil { // the stream's header
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{10, 100, 400, 4000} {
		msg := make([]byte, n)
		for i := range msg {
			msg[i] = byte(rng.Uint32())
		}
		packed, err := c.Compress(msg)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(packed) - n; got > 4 {
			t.Errorf("%d bytes: %d more after compression, want at most 4", n, got)
		}
	}
}

func BenchmarkCompress(b *testing.B) {
	c, err := NewCompressor()
	if err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	msgs := make([][]byte, 64)
	for i := range msgs {
		for range 1000 {
			msgs[i] = append(msgs[i], "temperature0"[rng.IntN(12)], byte(rng.Uint32()), byte(rng.IntN(8)), 0)
		}
	}
	b.SetBytes(4000)
	b.ReportAllocs()
	for i := range b.N {
		if _, err := c.Compress(msgs[i%64]); err != nil {
			b.Fatal(err)
		}
	}
}
