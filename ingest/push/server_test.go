package push

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/klauspost/compress/zstd"

	"sluice/ingest"
	"sluice/reading"
)

var now = reading.Time{Wall: 1_600_000_000e9}

// sink is an ingest.Sink that keeps batches as the store would.
type sink struct {
	mu      sync.Mutex
	batches []reading.Batch
	seen    map[reading.Receipt]bool
	append  func(ctx context.Context, done func(error)) error // if set, instead
}

func (s *sink) Append(ctx context.Context, b reading.Batch, done func(error)) error {
	if s.append != nil {
		return s.append(ctx, done)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		s.seen = make(map[reading.Receipt]bool)
	}
	if b.Receipt == (reading.Receipt{}) || !s.seen[b.Receipt] {
		s.seen[b.Receipt] = true
		s.batches = append(s.batches, b)
	}
	go done(nil)
	return nil
}

func server(s ingest.Sink, tokens map[string]string) *Server {
	return New(Options{
		Sink:    s,
		Pushed:  func(*reading.Batch) {},
		Now:     func() reading.Time { return now },
		Tokens:  tokens,
		MaxBody: 1000,
		Logger:  slog.New(slog.DiscardHandler),
	})
}

func request(body []byte, headers ...string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, Path, bytes.NewReader(body))
	r.Header.Set("Node", "n1")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

func answer(s *Server, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// pack is of now, dated says when.
const (
	pack  = `[{"bn":"kitchen/","n":"temperature","u":"Cel","v":23.50}]`
	dated = `[{"bn":"kitchen/","bt":1599999990,"n":"temperature","u":"Cel","v":23.50}]`
)

func zipped(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zstandard(t testing.TB, b []byte) []byte {
	t.Helper()
	z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	return z.EncodeAll(b, nil)
}

func inCBOR(t testing.TB) []byte {
	t.Helper()
	b, err := cbor.Marshal([]map[any]any{{-2: "kitchen/", 0: "temperature", 1: "Cel",
		2: cbor.Tag{Number: 4, Content: []int{-2, 2350}}}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestAccepted(t *testing.T) {
	value, _ := reading.Number("23.50")
	want := reading.Reading{Device: "kitchen", Name: "temperature", Unit: "Cel", Value: value, Time: now}
	for name, r := range map[string]*http.Request{
		"json":             request([]byte(pack), "Content-Type", "application/senml+json"),
		"json, parameters": request([]byte(pack), "Content-Type", "application/json; charset=utf-8"),
		"no type":          request([]byte(pack)),
		"cbor":             request(inCBOR(t), "Content-Type", "application/senml+cbor"),
		"cbor, no type":    request(inCBOR(t)),
		"gzip":             request(zipped(t, []byte(pack)), "Content-Encoding", "gzip"),
		"zstd":             request(zstandard(t, []byte(pack)), "Content-Encoding", "zstd"),
		"unsaid gzip":      request(zipped(t, inCBOR(t))),
		"unsaid zstd":      request(zstandard(t, inCBOR(t))),
	} {
		s := &sink{}
		if w := answer(server(s, nil), r); w.Code != http.StatusNoContent {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
			continue
		}
		b := s.batches[0]
		if len(b.Readings) != 1 || b.Readings[0] != want || b.Lane != reading.Live {
			t.Errorf("%s: got %+v", name, b)
		}
	}
}

// The same batch pushed again is stored once, and answered 204 again: what has
// the same id, or without one the same content, if that says when it was
// measured. A door that opens again is no repetition.
func TestRepeat(t *testing.T) {
	s := &sink{}
	srv := server(s, nil)
	for i, c := range []struct {
		headers []string
		body    string
		want    int // batches in the sink
	}{
		{nil, dated, 1},
		{nil, dated, 1},
		{nil, dated + " ", 2},
		{[]string{"Node", "n2"}, dated, 3},
		{[]string{"Batch-Id", "a"}, pack, 4},
		{[]string{"Batch-Id", "a"}, pack, 4},
		{[]string{"Batch-Id", "b"}, pack, 5},
		{nil, pack, 6},
		{nil, pack, 7},
		{nil, `[{"n":"door","vb":true,"t":-5}]`, 8},
		{nil, `[{"n":"door","vb":true,"t":-5}]`, 9},
		{nil, `[{"n":"door","vb":true,"t":1599999990},{"n":"window","vb":true}]`, 10},
		{nil, `[{"n":"door","vb":true,"t":1599999990},{"n":"window","vb":true}]`, 11},
	} {
		if w := answer(srv, request([]byte(c.body), c.headers...)); w.Code != http.StatusNoContent {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		if len(s.batches) != c.want {
			t.Errorf("step %d: %d batches, want %d", i, len(s.batches), c.want)
		}
	}
}

func TestReceipt(t *testing.T) {
	b, err := Decode("", "n1", []byte(dated), now, 1000)
	if r := b.Receipt; err != nil || r.Sender != "push:n1" || r.Keep != 256 || !r.Repeat || r.ID == 0 {
		t.Errorf("got %+v, %v", r, err)
	}
}

// A relative time is as good as what it counts from.
func TestTimes(t *testing.T) {
	unset := reading.Time{Wall: 60e9, Quality: reading.Unsynchronised, Boot: 1, Mono: 50e9}
	body := []byte(`[{"n":"a","v":1},{"n":"a","v":1,"t":-10},{"n":"a","v":1,"t":1422886740}]`)
	said := reading.Time{Wall: 1422886740e9, Quality: reading.FromDevice}
	for now, want := range map[reading.Time][]reading.Time{
		now:   {now, {Wall: now.Wall - 10e9, Quality: reading.FromDevice}, said},
		unset: {unset, {Wall: 50e9, Quality: reading.Unsynchronised, Boot: 1, Mono: 40e9}, said},
	} {
		b, err := Decode("", "n", body, now, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range b.Readings {
			if r.Time != want[i] {
				t.Errorf("record %d: got %+v, want %+v", i, r.Time, want[i])
			}
		}
	}
}

// Alarm rules hold for what is pushed, and every answer is counted.
func TestPushedAndStats(t *testing.T) {
	s := &sink{}
	srv := server(s, nil)
	srv.options.Pushed = func(b *reading.Batch) { b.Lane = reading.Alarm }
	for body, want := range map[string]int{pack: 204, "nonsense": 415} {
		if w := answer(srv, request([]byte(body))); w.Code != want {
			t.Errorf("%s: got %d, want %d", body, w.Code, want)
		}
	}
	if got, want := srv.Stats(), (Stats{Accepted: 1, Refused: 1}); got != want || s.batches[0].Lane != reading.Alarm {
		t.Errorf("got %+v and lane %v, want %+v in the alarm lane", got, s.batches[0].Lane, want)
	}
}

func TestLane(t *testing.T) {
	for body, want := range map[string]reading.Lane{
		`[{"n":"a","v":1,"t":-599}]`:                             reading.Live,
		`[{"n":"a","v":1,"t":-601}]`:                             reading.Backfill,
		`[{"n":"a","v":1,"t":-86400},{"n":"a","v":1,"t":-1}]`:    reading.Live,
		`[{"n":"a","v":1,"t":1422886740},{"n":"a","v":1,"t":2}]`: reading.Live,
		`[{"n":"a","v":1,"t":1422886740}]`:                       reading.Backfill,
	} {
		b, err := Decode("", "n", []byte(body), now, 1000)
		if err != nil || b.Lane != want {
			t.Errorf("%s: lane %v, %v, want %v", body, b.Lane, err, want)
		}
	}
	// F14: an unset clock makes nothing old.
	unset := reading.Time{Wall: 60e9, Quality: reading.Unsynchronised, Boot: 1, Mono: 50e9}
	if b, err := Decode("", "n", []byte(pack), unset, 1000); err != nil || b.Lane != reading.Live || b.Readings[0].Time != unset {
		t.Errorf("unset clock: %+v, %v", b, err)
	}
}

func TestRefused(t *testing.T) {
	long := []byte("[" + strings.Repeat(`{"n":"a","v":1},`, 100) + `{"n":"a","v":1}]`)
	fails := func(err error) *sink {
		return &sink{append: func(context.Context, func(error)) error { return err }}
	}
	later := func(err error) *sink {
		return &sink{append: func(_ context.Context, done func(error)) error { go done(err); return nil }}
	}
	get := request(nil)
	get.Method = http.MethodGet
	elsewhere := request(nil)
	elsewhere.URL.Path = "/"
	for _, c := range []struct {
		name    string
		sink    *sink
		request *http.Request
		status  int
		text    string
		headers string // one that must be there
	}{
		{"elsewhere", &sink{}, elsewhere, 404, "POST batches to /v1/batches", ""},
		{"method", &sink{}, get, 405, "sent with POST", "Allow: POST"},
		{"no node", &sink{}, request([]byte(pack), "Node", ""), 400, `add the header "Node: NAME"`, ""},
		{"long id", &sink{}, request([]byte(pack), "Batch-Id", strings.Repeat("x", 129)), 400, "use at most 128", ""},
		{"type", &sink{}, request([]byte(pack), "Content-Type", "text/csv"), 415, "send application/senml+json", ""},
		{"no type", &sink{}, request([]byte("a,b")), 415, "is not SenML", ""},
		{"encoding", &sink{}, request([]byte(pack), "Content-Encoding", "br"), 415, "use gzip, zstd or none", ""},
		{"not gzip", &sink{}, request([]byte(pack), "Content-Encoding", "gzip"), 400, "gzip body cannot be decompressed", ""},
		{"half a gzip", &sink{}, request(zipped(t, []byte(pack))[:30]), 400, "gzip body cannot be decompressed", ""},
		{"not zstd", &sink{}, request([]byte(pack), "Content-Encoding", "zstd"), 400, "zstd body cannot be decompressed", ""},
		{"large", &sink{}, request(long), 413, "more than 1000 bytes", ""},
		{"gzip bomb", &sink{}, request(zipped(t, bytes.Repeat(long, 100))), 413, "more than 1000 bytes, decompressed: split it", ""},
		{"zstd bomb", &sink{}, request(zstandard(t, bytes.Repeat(long, 1000))), 413, "more than 1000 bytes, decompressed: split it", ""},
		{"record", &sink{}, request([]byte(`[{"n":"a","v":1},{"n":"a","v":"1"}]`)), 400, `record 1: field "v": must be a number`, ""},
		{"cut short", &sink{}, request([]byte(`[{"n":"a","v":1}`)), 400, "not valid JSON", ""},
		{"empty", &sink{}, request(nil), 415, "is not SenML", ""},
		{"busy", fails(ingest.ErrBusy), request([]byte(pack)), 429, "gateway busy", "Retry-After: 5"},
		{"full", fails(ingest.ErrFull), request([]byte(pack)), 429, "storage full", "Retry-After: 60"},
		{"full later", later(ingest.ErrFull), request([]byte(pack)), 429, "storage full", "Retry-After: 60"},
		{"disk", later(errors.New("input/output error")), request([]byte(pack)), 503, "not stored (input/output error): keep it", "Retry-After: 5"},
	} {
		w := answer(server(c.sink, nil), c.request)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.text) {
			t.Errorf("%s: got %d %swant %d with %q", c.name, w.Code, w.Body, c.status, c.text)
		}
		if key, want, ok := strings.Cut(c.headers, ": "); ok && w.Header().Get(key) != want {
			t.Errorf("%s: %s is %q, want %q", c.name, key, w.Header().Get(key), want)
		}
		if len(c.sink.batches) > 0 {
			t.Errorf("%s: stored all the same", c.name)
		}
	}
}

func TestTokens(t *testing.T) {
	for _, c := range []struct {
		name    string
		headers []string
		status  int
		text    string
	}{
		{"bearer", []string{"Node", "", "Authorization", "Bearer secret"}, 204, ""},
		{"bearer and name", []string{"Authorization", "bearer secret"}, 204, ""},
		{"basic", []string{"Node", "", "Authorization", "Basic bjE6c2VjcmV0"}, 204, ""}, // n1:secret
		{"none", nil, 401, "a token is needed"},
		{"wrong", []string{"Authorization", "Bearer Secret"}, 401, "not known here"},
		{"empty", []string{"Authorization", "Bearer "}, 401, "not known here"},
		{"another's", []string{"Node", "n2", "Authorization", "Bearer secret"}, 401, `not that of node "n2"`},
	} {
		s := &sink{}
		w := answer(server(s, map[string]string{"secret": "n1"}), request([]byte(dated), c.headers...))
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.text) {
			t.Errorf("%s: got %d %s, want %d with %q", c.name, w.Code, w.Body, c.status, c.text)
		}
		if w.Code == 401 && w.Header().Get("WWW-Authenticate") == "" {
			t.Errorf("%s: no WWW-Authenticate", c.name)
		}
		if w.Code == 204 && s.batches[0].Receipt.Sender != "push:n1" {
			t.Errorf("%s: sender %s", c.name, s.batches[0].Receipt.Sender)
		}
	}
}

// Promise 1: 2xx only after the commit, and no waiting for ever.
func TestAnswerAfterCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			commit time.Duration
			status int
		}{{time.Second, 204}, {29 * time.Second, 204}, {31 * time.Second, 503}} {
			var committed atomic.Bool
			s := &sink{append: func(_ context.Context, done func(error)) error {
				time.AfterFunc(c.commit, func() { committed.Store(true); done(nil) })
				return nil
			}}
			start := time.Now()
			w := answer(server(s, nil), request([]byte(pack)))
			if w.Code != c.status || (w.Code == 204) != committed.Load() {
				t.Errorf("commit after %v: %d after %v", c.commit, w.Code, time.Since(start))
			}
			synctest.Wait()
		}
		// A sink that is full blocks for a second, not longer.
		s := &sink{append: func(ctx context.Context, _ func(error)) error { <-ctx.Done(); return ingest.ErrBusy }}
		start := time.Now()
		if w := answer(server(s, nil), request([]byte(pack))); w.Code != 429 || time.Since(start) != time.Second {
			t.Errorf("%d after %v, want 429 after 1s", w.Code, time.Since(start))
		}
		<-time.After(time.Minute) // the last commit's timer
	})
}

func TestTooManyReadings(t *testing.T) {
	body := []byte("[" + strings.Repeat(`{"n":"a","v":1},`, reading.MaxBatch) + `{"n":"a","v":1}]`)
	s := server(&sink{}, nil)
	s.options.MaxBody = 10e6
	if w := answer(s, request(body)); w.Code != 413 || !strings.Contains(w.Body.String(), "split") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(pack))
	f.Add(zipped(f, []byte(pack)))
	f.Add(zstandard(f, []byte(pack)))
	f.Add(inCBOR(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		batch, err := Decode("", "n", b, now, 10_000)
		if (err == nil) != (len(batch.Readings) > 0) {
			t.Fatalf("%d readings, %v", len(batch.Readings), err)
		}
	})
}
