// Package push takes batches of readings from sink nodes that keep them until
// they are accepted: over HTTP (Server), or as the payload of an MQTT message
// (Decode). Client is the sender of nodes without one of their own.
package push

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/klauspost/compress/zstd"

	"sluice/reading"
	"sluice/reading/senml"
)

// backfillAge is how old a batch's newest reading is at least if the batch is
// old data, which live data overtakes.
const backfillAge = 10 * time.Minute

// remembered is how many batches of one node are recognised when they come
// again.
const remembered = 256

var (
	// ErrEncoding is returned, wrapped, when a compressed body is damaged or is
	// not compressed as its sender says.
	ErrEncoding = errors.New("cannot be decompressed")
	// ErrType is returned, wrapped, for a body that is no SenML pack.
	ErrType = errors.New("is not SenML in JSON or CBOR: send " + senml.JSON + " or " + senml.CBOR)
)

// TooLargeError is returned when a body, or what it decompresses to, is longer
// than Limit bytes.
type TooLargeError struct{ Limit int64 }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("more than %d bytes, decompressed: split it", e.Limit)
}

// Decode returns the batch that node pushed as body, a SenML pack, which may be
// compressed with gzip or zstd. contentType is its media type, or empty if the
// body is to show it itself. Records without a time are of now; what decompresses
// to more than limit bytes is refused.
//
// The batch is Backfill if its newest reading is older than ten minutes, else
// Live. If every record says when it was measured, the receipt identifies the
// batch by its content, so that the same body pushed again is kept once. Records
// of now, or of some time before now, are other readings whenever they come:
// such a batch has no receipt.
//
// Errors are *TooLargeError, *senml.RecordError, senml.ErrTooMany, or wrap
// ErrEncoding or ErrType.
func Decode(contentType, node string, body []byte, now reading.Time, limit int64) (reading.Batch, error) {
	return decode(contentType, "", node, body, now, limit)
}

func decode(contentType, encoding, node string, body []byte, now reading.Time, limit int64) (reading.Batch, error) {
	pack, err := decompress(encoding, body, limit)
	if err != nil {
		return reading.Batch{}, err
	}
	if contentType == "" {
		contentType = TypeOf(pack)
	}
	o := senml.Options{Device: node, Now: now}
	o.Now.Quality = reading.Unsynchronised // marks what is of now or counts from it
	var rs []reading.Reading
	switch contentType {
	case senml.JSON, "application/json":
		rs, err = senml.DecodeJSON(pack, o)
	case senml.CBOR:
		rs, err = senml.DecodeCBOR(pack, o)
	default:
		return reading.Batch{}, fmt.Errorf("content %w", ErrType)
	}
	if err != nil {
		return reading.Batch{}, err
	}
	b := reading.Batch{Readings: rs}
	if b.Lane = laneOf(rs, now); !fromNow(rs, now) {
		b.Receipt = receipt(node, body)
	}
	return b, nil
}

// fromNow reports whether any reading's time counts from now, and gives those
// that do the quality that follows from now's.
func fromNow(rs []reading.Reading, now reading.Time) bool {
	found := false
	for i := range rs {
		t := &rs[i].Time
		if t.Quality != reading.Unsynchronised {
			continue
		}
		found = true
		switch {
		case now.Quality == reading.Unsynchronised:
		case t.Wall == now.Wall:
			*t = now
		default: // the device said how long ago
			*t = reading.Time{Wall: t.Wall, Quality: reading.FromDevice}
		}
	}
	return found
}

// TypeOf returns the media type of an uncompressed pack by how it begins, or ""
// if it is none.
func TypeOf(pack []byte) string {
	if start := bytes.TrimLeft(pack, " \t\r\n"); len(start) > 0 && start[0] == '[' {
		return senml.JSON
	}
	// An array of up to 23 items, of a stated count, or of an open end (RFC 8949).
	if len(pack) > 0 && (pack[0] >= 0x80 && pack[0] <= 0x9b || pack[0] == 0x9f) {
		return senml.CBOR
	}
	return ""
}

func laneOf(rs []reading.Reading, now reading.Time) reading.Lane {
	newest := int64(math.MinInt64)
	for i := range rs {
		newest = max(newest, rs[i].Time.Wall)
	}
	if newest < now.Wall-int64(backfillAge) {
		return reading.Backfill
	}
	return reading.Live
}

// receipt is that of the batch with the given id, or of the given content.
func receipt[T string | []byte](node string, id T) reading.Receipt {
	// A cryptographic hash, for two ids of one hash would lose a batch.
	sum := sha256.Sum256([]byte(id))
	return reading.Receipt{
		Sender: "push:" + node,
		ID:     binary.BigEndian.Uint64(sum[:]),
		Keep:   remembered,
		Repeat: true,
	}
}

// decompress returns body as it was before its sender compressed it. encoding is
// "gzip", "zstd", "identity", or empty if the body is to show it itself.
func decompress(encoding string, body []byte, limit int64) ([]byte, error) {
	if encoding == "" {
		switch {
		case bytes.HasPrefix(body, []byte{0x1f, 0x8b}):
			encoding = "gzip"
		case bytes.HasPrefix(body, []byte{0x28, 0xb5, 0x2f, 0xfd}):
			encoding = "zstd"
		}
	}
	in := io.Reader(bytes.NewReader(body))
	switch encoding {
	case "gzip":
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("gzip body %w: %w", ErrEncoding, err)
		}
		in = z
	case "zstd":
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, fmt.Errorf("zstd body %w: %w", ErrEncoding, err)
		}
		defer z.Close()
		in = z
	default:
		if int64(len(body)) > limit {
			return nil, &TooLargeError{limit}
		}
		return body, nil
	}
	pack, err := io.ReadAll(io.LimitReader(in, limit+1))
	if int64(len(pack)) > limit {
		return nil, &TooLargeError{limit}
	}
	if err != nil {
		return nil, fmt.Errorf("%s body %w: %w", encoding, ErrEncoding, err)
	}
	return pack, nil
}

// maxWindow bounds what a zstd frame may make its reader allocate; every sender
// at the usual levels stays below (RFC 8878, 3.1.1.1.2).
const maxWindow = 8 << 20
