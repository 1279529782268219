package jetstream

import (
	"context"
	"log/slog"
	"testing"

	"sluice/collector"
	"sluice/collector/outputtest"
	"sluice/reading"
)

var live = collector.Stream{Gateway: "gw-1", Epoch: 7, Lane: reading.Live}

// open opens an output with a server of its own in dir.
func open(tb testing.TB, dir string) *Output {
	tb.Helper()
	o, err := Open(context.Background(), Options{
		Server: &Server{Dir: dir, Listen: "127.0.0.1:0"},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { o.Close() })
	return o
}

// read returns what an ordinary client at url finds of one stream.
func read(t *testing.T, cluster Cluster, s collector.Stream) []collector.Delivery {
	t.Helper()
	var ds []collector.Delivery
	err := walk(outputtest.Context(t), cluster, DefaultStream, func(m message) error {
		if m.Stream == s {
			ds = append(ds, outputtest.Delivery(t, m.Pack))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return ds
}

// once reports whether ds are the readings 1 to last, each once and in order.
func once(ds []collector.Delivery, last uint64) bool {
	next := uint64(1)
	for _, d := range ds {
		if d.First != next {
			return false
		}
		next = d.Last() + 1
	}
	return next == last+1
}

func TestConformance(t *testing.T) {
	outputtest.Run(t, func(t *testing.T) outputtest.Place {
		dir := t.TempDir()
		var address string
		return outputtest.Place{
			Open: func(t *testing.T) collector.Output {
				o := open(t, dir)
				address = o.Address()
				return o
			},
			Read: func(t *testing.T, s collector.Stream) []collector.Delivery {
				return read(t, Cluster{URLs: []string{"nats://" + address}}, s)
			},
		}
	})
}
