package flow

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"

	"github.com/fxamacker/cbor/v2"

	"sluice/ingest/push"
	"sluice/lab"
	"sluice/reading/senml"
)

// readingBytes is the payload of one reading of a Backlog: bytes that nothing
// can compress, of which the first eight are the reading's number. Several go into
// the smallest frames, so that few packets are half empty on slow links.
const readingBytes = 1000

// batchReadings is how many readings are pushed at once.
const batchReadings = 100

// Backlog is a gateway's folder that holds readings which were never sent. It is
// filled once and copied for each Product.
type Backlog struct {
	binaries string
	dir      string // of the gateway's data
	readings int
}

// NewBacklog fills a gateway in dir with at least so many bytes of payload.
func NewBacklog(ctx context.Context, dir, binaries string, payload int, seed uint64) (*Backlog, error) {
	b := &Backlog{binaries: binaries, dir: filepath.Join(dir, "gateway")}
	if err := b.fill(ctx, dir, payload, seed); err != nil {
		return nil, fmt.Errorf("fill a backlog: %w", err)
	}
	return b, nil
}

func (b *Backlog) fill(ctx context.Context, dir string, payload int, seed uint64) error {
	site, err := lab.NewSite(ctx, lab.SiteOptions{Dir: dir, Binaries: b.binaries, GatewayData: b.dir})
	if err != nil {
		return err
	}
	defer site.Close()
	if err := site.StartGateway(ctx); err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(seed, 0))
	client := push.Client{URL: site.PushURL() + "/v1/batches", Node: "backlog", HTTP: http.DefaultClient, Random: random.Float64}
	for b.readings < (payload+readingBytes-1)/readingBytes {
		pack, err := b.batch(random)
		if err != nil {
			return err
		}
		if err := client.Push(ctx, pack, senml.CBOR, strconv.Itoa(b.readings)); err != nil {
			return err
		}
	}
	return site.StopGateway(ctx)
}

// batch renders the next readings as SenML in CBOR, whose labels are numbers
// (RFC 8428, table 5): 0 is the name, 8 is data.
func (b *Backlog) batch(random *rand.Rand) ([]byte, error) {
	pack := make([]map[int]any, batchReadings)
	for i := range pack {
		data := make([]byte, readingBytes)
		for at := 8; at < len(data); at += 8 {
			binary.LittleEndian.PutUint64(data[at:], random.Uint64())
		}
		binary.BigEndian.PutUint64(data, uint64(b.readings))
		b.readings++
		pack[i] = map[int]any{0: "random", 8: data}
	}
	return cbor.Marshal(pack)
}

// copyTo makes a gateway's folder with the same backlog.
func (b *Backlog) copyTo(dir string) error {
	if err := os.CopyFS(dir, os.DirFS(b.dir)); err != nil {
		return fmt.Errorf("copy the backlog: %w", err)
	}
	return nil
}
