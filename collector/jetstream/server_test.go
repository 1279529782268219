package jetstream

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"sluice/collector"
	"sluice/collector/outputtest"
)

// An ordinary client reads, keeps consumers, and can neither write to the stream
// nor take from it.
func TestReadersCannotWrite(t *testing.T) {
	o := open(t, t.TempDir())
	ctx := outputtest.Context(t)
	if err := o.Write(ctx, live, 0, []collector.Delivery{outputtest.Readings(1, 3)}); err != nil {
		t.Fatal(err)
	}
	refused := make(chan error, 1)
	conn, err := nats.Connect("nats://"+o.Address(),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateConsumer(ctx, DefaultStream, jetstream.ConsumerConfig{Durable: "mine"}); err != nil {
		t.Fatalf("create consumer: %v", err)
	}
	for _, subject := range []string{
		Subject(live),
		"$JS.API.STREAM.UPDATE.SLUICE",
		"$JS.API.STREAM.DELETE.SLUICE",
		"$JS.API.STREAM.PURGE.SLUICE",
		"$JS.API.STREAM.RESTORE.SLUICE",
		"$JS.API.STREAM.MSG.DELETE.SLUICE",
		"$JS.API.STREAM.CREATE.MINE",
		"$JS.API.ACCOUNT.PURGE.x",
		"_INBOX.somebody", // as if it were the server that answers the collector
	} {
		if err := conn.Publish(subject, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-refused:
			if !errors.Is(err, nats.ErrPermissionViolation) {
				t.Errorf("publish on %s: got %v, want %v", subject, err, nats.ErrPermissionViolation)
			}
		case <-ctx.Done():
			t.Fatalf("publish on %s: was not refused", subject)
		}
	}
	if last, err := o.Last(ctx, live); err != nil || last != 3 {
		t.Fatalf("last: got %d, %v, want 3", last, err)
	}
}

// The server sends an answer to whatever subject a client names for it, and that
// may be the collector's own: what then stands there does not stop the gateway.
func TestForeignMessage(t *testing.T) {
	o := open(t, t.TempDir())
	ctx := outputtest.Context(t)
	if err := o.Write(ctx, live, 0, []collector.Delivery{outputtest.Readings(1, 3)}); err != nil {
		t.Fatal(err)
	}
	conn, err := nats.Connect("nats://" + o.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 2 {
		if err := conn.PublishRequest("$JS.API.INFO", Subject(live), nil); err != nil {
			t.Fatal(err)
		}
		// The answer to a later request comes later.
		if _, err := conn.RequestWithContext(ctx, "$JS.API.INFO", nil); err != nil {
			t.Fatal(err)
		}
	}
	last := uint64(3)
	for range 3 { // the first may find its expectation wrong
		err := o.Write(ctx, live, last, []collector.Delivery{outputtest.Readings(last+1, 1)})
		if errors.Is(err, collector.ErrConflict) {
			last, err = o.Last(ctx, live)
		} else {
			last++
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if last < 5 {
		t.Fatalf("last: got %d, want at least 5", last)
	}
	if ds := read(t, Cluster{URLs: []string{"nats://" + o.Address()}}, live); !once(ds, last) {
		t.Errorf("the stream does not hold readings 1 to %d once", last)
	}
}

func TestReadersPassword(t *testing.T) {
	o, err := Open(t.Context(), Options{
		Server: &Server{Dir: t.TempDir(), Listen: "127.0.0.1:0", User: "reader", Password: "secret"},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	for _, test := range []struct {
		user, password string
		ok             bool
	}{{"", "", false}, {"reader", "wrong", false}, {"reader", "secret", true}} {
		conn, err := nats.Connect("nats://"+o.Address(), nats.UserInfo(test.user, test.password))
		if (err == nil) != test.ok {
			t.Errorf("user %q with %q: got %v, want success %v", test.user, test.password, err, test.ok)
		}
		if err == nil {
			conn.Close()
		}
	}
}

// F4: the same options again leave the stream as it is; other limits are taken
// over; a stream that would forget is refused.
func TestStreamLimits(t *testing.T) {
	dir := t.TempDir()
	with := func(change func(*Options)) (*Output, error) {
		opts := Options{Server: &Server{Dir: dir}, Logger: slog.New(slog.DiscardHandler), MaxBytes: 1 << 30, MaxAge: time.Hour}
		change(&opts)
		return Open(t.Context(), opts)
	}
	o, err := with(func(*Options) {})
	if err != nil {
		t.Fatal(err)
	}
	o.Close()
	o, err = with(func(opts *Options) { opts.MaxAge = 2 * time.Hour })
	if err != nil {
		t.Fatal(err)
	}
	cfg := o.stream.CachedInfo().Config
	if cfg.MaxAge != 2*time.Hour || cfg.MaxBytes != 1<<30 {
		t.Errorf("limits: got %v and %d bytes, want 2h and %d", cfg.MaxAge, cfg.MaxBytes, 1<<30)
	}
	cfg.MaxMsgsPerSubject = 1
	if _, err := o.js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	o.Close()
	if o, err = with(func(*Options) {}); err == nil || !strings.Contains(err.Error(), "max_msgs_per_subject") {
		t.Errorf("a stream of one message a subject: got %v, want a refusal with a remedy", err)
	}
	if err == nil {
		o.Close()
	}
}

// A second collector must not touch the files, whether or not it listens.
func TestOneServerAFolder(t *testing.T) {
	dir := t.TempDir()
	o := open(t, dir)
	opts := Options{Server: &Server{Dir: dir}, Logger: slog.New(slog.DiscardHandler)}
	if second, err := Open(t.Context(), opts); err == nil || !strings.Contains(err.Error(), "another collector") {
		if err == nil {
			second.Close()
		}
		t.Fatalf("second server in one folder: got %v, want a refusal", err)
	}
	o.Close()
	third, err := Open(t.Context(), opts)
	if err != nil {
		t.Fatalf("after the first was closed: %v", err)
	}
	third.Close()
}

func TestOpenReports(t *testing.T) {
	for _, test := range []struct {
		name, want string
		opts       Options
	}{
		{"neither", "either", Options{}},
		{"no server there", "nats://127.0.0.1:1", Options{Cluster: &Cluster{URLs: []string{"nats://me:secret@127.0.0.1:1"}}}},
		{"no port", "listen address", Options{Server: &Server{Dir: t.TempDir(), Listen: "127.0.0.1"}}},
		{"a folder that cannot be", "nats server: mkdir /dev/null", Options{Server: &Server{Dir: "/dev/null/x"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.opts.Logger = slog.New(slog.DiscardHandler)
			o, err := Open(outputtest.Context(t), test.opts)
			if err == nil {
				o.Close()
				t.Fatal("got no error")
			}
			if !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "secret") {
				t.Fatalf("got %q, want %q in it and no password", err, test.want)
			}
		})
	}
}
