package flow

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"sluice/admin"
	"sluice/lab"
	"sluice/lab/topology"
)

// ProductOptions say where gateway and collector run and how they are
// configured.
type ProductOptions struct {
	Dir       string         // for everything that they write; it must not exist
	Near, Far *topology.Host // nil for here
	Reach     []string       // the collector's IP addresses, one a path if it is multi-homed
	Uplink    string         // TOML added to the gateway's table uplink
	Paths     []lab.SitePath // in the order of preference
	Collector string         // TOML added to the collector's configuration
}

// Product is a gateway with a Backlog and its collector.
type Product struct {
	site      *lab.Site
	dir       string
	binaries  string
	far       *topology.Host
	tail      *tail
	collector *lab.Process
}

var _ Sender = (*Product)(nil)

// Outcome is what the real programs say of themselves and what their output
// shows, beside the throughput.
type Outcome struct {
	Status admin.Status
	Onset  time.Time
	// Faults is how many readings came twice, out of sequence or changed.
	Faults int
}

// OpenProduct prepares both ends; nothing runs yet.
func OpenProduct(ctx context.Context, b *Backlog, o ProductOptions) (*Product, error) {
	p := &Product{dir: o.Dir, binaries: b.binaries, far: o.Far, tail: newTail(filepath.Join(o.Dir, "files"), b.readings)}
	if err := p.prepare(ctx, b, o); err != nil {
		p.Close()
		return nil, fmt.Errorf("open product: %w", err)
	}
	return p, nil
}

func (p *Product) prepare(ctx context.Context, b *Backlog, o ProductOptions) (err error) {
	if err := os.Mkdir(o.Dir, 0o755); err != nil {
		return err
	}
	data := filepath.Join(o.Dir, "gateway")
	if err := b.copyTo(data); err != nil {
		return err
	}
	p.site, err = lab.NewSite(ctx, lab.SiteOptions{
		Dir: o.Dir, Binaries: b.binaries, GatewayData: data,
		Near: o.Near, Far: o.Far, Reach: o.Reach, Uplink: o.Uplink, Paths: o.Paths,
		// The first line belongs to the table jetstream: a stream would cost more
		// than all the rest.
		CollectorTables: fmt.Sprintf("enabled = false\n[files]\ndir = %q\n%s", p.tail.dir, o.Collector),
	})
	return err
}

const (
	// connectLimit is how long a product may take to deliver its first reading.
	connectLimit = 30 * time.Second
	// settle is how long it then runs before the onset: after it every carrier
	// that it wants is there.
	settle = 3 * time.Second
	// look is the time between two looks at the output.
	look = 10 * time.Millisecond
)

// errDry is returned when the backlog was too small for the run.
var errDry = errors.New("everything was delivered before the end; fill a larger backlog")

// Run implements Sender. Delivered is what the collector's output holds.
func (p *Product) Run(ctx context.Context, length time.Duration, onset func() error) (Result, error) {
	defer p.Close()
	if err := p.start(ctx); err != nil {
		return Result{}, err
	}
	if err := p.follow(ctx, time.Now().Add(settle), func(time.Time, int) bool { return false }); err != nil {
		return Result{}, err
	}
	if err := onset(); err != nil {
		return Result{}, err
	}
	origin := time.Now()
	meter := NewMeter(origin, length)
	err := p.follow(ctx, origin.Add(length), func(now time.Time, n int) bool {
		meter.Add(now, n)
		return false
	})
	if err != nil {
		return Result{}, err
	}
	r := Result{Series: meter.Series(), Gap: meter.Longest(), Product: &Outcome{Onset: origin, Faults: p.tail.faults}}
	if r.Product.Status, err = p.site.Status(ctx); err != nil {
		return Result{}, fmt.Errorf("%w\n%s", err, p.site.Gateway.Tail())
	}
	if p.tail.count == len(p.tail.seen) {
		return Result{}, errDry
	}
	return r, nil
}

// start starts both programs and waits for the first reading.
func (p *Product) start(ctx context.Context) (err error) {
	p.collector, err = lab.StartProcess(lab.ProcessOptions{
		Path: filepath.Join(p.binaries, "sluice-collector"),
		Args: []string{"run", "--config", filepath.Join(p.dir, "collector.toml")},
		Dir:  p.dir, Log: filepath.Join(p.dir, "collector.log"), Host: p.far,
	})
	if err != nil {
		return err
	}
	if err := p.site.LaunchGateway(); err != nil {
		return err
	}
	came := false
	err = p.follow(ctx, time.Now().Add(connectLimit), func(_ time.Time, n int) bool {
		came = n > 0
		return came
	})
	if err == nil && !came {
		err = fmt.Errorf("nothing was delivered within %v\ngateway: %s\ncollector: %s", connectLimit, p.site.Gateway.Tail(), p.collector.Tail())
	}
	return err
}

// follow looks at the output until end, or until each says that it is enough.
// Each is told how many bytes came.
func (p *Product) follow(ctx context.Context, end time.Time, each func(time.Time, int) bool) error {
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-p.site.Gateway.Done():
			return fmt.Errorf("the gateway ended\n%s", p.site.Gateway.Tail())
		case <-p.collector.Done():
			return fmt.Errorf("the collector ended\n%s", p.collector.Tail())
		case <-ctx.Done():
			return ctx.Err()
		}
		n, err := p.tail.advance()
		if err != nil {
			return err
		}
		if now := time.Now(); each(now, n) || !now.Before(end) {
			return nil
		}
	}
}

// Close ends both programs at once and removes what they wrote.
func (p *Product) Close() {
	if p.site != nil {
		p.site.Close()
	}
	if p.collector != nil {
		p.collector.Kill()
	}
	os.RemoveAll(p.dir)
}
