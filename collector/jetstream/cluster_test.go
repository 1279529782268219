package jetstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"sluice/collector"
	"sluice/collector/outputtest"
)

// startCluster starts three servers on loopback and returns their addresses.
func startCluster(t *testing.T) (servers []*server.Server, cluster Cluster) {
	t.Helper()
	var ports []int
	var routes []*url.URL
	for range 3 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		ports = append(ports, ln.Addr().(*net.TCPAddr).Port)
		routes = append(routes, &url.URL{Scheme: "nats-route", Host: ln.Addr().String()})
		ln.Close()
	}
	for i, port := range ports {
		s, err := server.NewServer(&server.Options{
			ServerName: fmt.Sprintf("nats-%d", i+1), Host: "127.0.0.1", Port: server.RANDOM_PORT,
			JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
			Cluster: server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: port},
			Routes:  routes,
		})
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		servers = append(servers, s)
	}
	deadline := time.After(time.Minute)
	for _, s := range servers {
		for !s.ReadyForConnections(time.Second) || !s.JetStreamIsCurrent() {
			select {
			case <-deadline:
				t.Fatal("the cluster does not come up")
			case <-time.After(20 * time.Millisecond):
			}
		}
		cluster.URLs = append(cluster.URLs, s.ClientURL())
	}
	return servers, cluster
}

func openCluster(t *testing.T, cluster Cluster) *Output {
	t.Helper()
	for {
		o, err := Open(outputtest.Context(t), Options{Cluster: &cluster, Replicas: 3, Logger: slog.New(slog.DiscardHandler)})
		if err == nil {
			t.Cleanup(func() { o.Close() })
			return o
		}
		// Until the servers know each other, they have no room for three copies.
		if errors.Is(err, context.DeadlineExceeded) || t.Context().Err() != nil {
			t.Fatal(err)
		}
		t.Log(err)
		<-time.After(200 * time.Millisecond)
	}
}

// Two collectors on a cluster of three servers fight for one stream, as when a
// gateway reconnects to another collector while the first still writes; then a
// server goes. Exactly one copy of each sequence number is there.
func TestTwoCollectorsOnACluster(t *testing.T) {
	servers, cluster := startCluster(t)
	outputs := []*Output{openCluster(t, cluster), openCluster(t, cluster)}
	const total = 2000
	var wg sync.WaitGroup
	var conflicts [2]int
	var oneGoes sync.Once // half-way; both must find their way
	for i, o := range outputs {
		wg.Go(func() {
			ctx := outputtest.Context(t)
			last, err := o.Last(ctx, live)
			for last < total && ctx.Err() == nil {
				if err == nil {
					n := min(1+int(last)%17, int(total-last))
					err = o.Write(ctx, live, last, []collector.Delivery{outputtest.Readings(last+1, n)})
					if err == nil {
						last += uint64(n)
						if last > total/2 {
							oneGoes.Do(servers[2].Shutdown)
						}
						continue
					}
				}
				if errors.Is(err, collector.ErrConflict) {
					conflicts[i]++
				}
				last, err = o.Last(ctx, live)
			}
			if last < total {
				t.Errorf("collector %d: got to %d of %d: %v", i, last, total, err)
			}
		})
	}
	wg.Wait()
	t.Logf("conflicts: %v", conflicts)
	got := read(t, cluster, live)
	outputtest.WantRead(t, outputtest.Place{
		Read: func(*testing.T, collector.Stream) []collector.Delivery { return got },
	}, live, outputtest.Readings(1, total))
}
