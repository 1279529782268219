package update

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// content is size bytes without a repetition.
func content(size int) []byte {
	var b []byte
	for i := 0; len(b) < size; i++ {
		sum := sha256.Sum256(fmt.Append(nil, i))
		b = append(b, sum[:]...)
	}
	return b[:size]
}

// badLink serves a file, and ends each answer after a part of it.
type badLink struct {
	file, changed []byte // what it is, and what it is from the third request on, if not nil
	tag           string
	part          int
	noRanges      bool
	hang          bool // an answer stops coming, instead of ending
	requests      int
	ranges        []string
}

func (l *badLink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.requests++
	l.ranges = append(l.ranges, r.Header.Get("Range"))
	file, tag := l.file, l.tag
	if l.changed != nil && l.requests > 2 {
		file, tag = l.changed, l.tag+"-2"
	}
	if l.noRanges {
		r.Header.Del("Range")
	}
	if tag != "" {
		w.Header().Set("ETag", `"`+tag+`"`)
	}
	http.ServeContent(&cutter{w, l.part, l.hang, r.Context()}, r, "", time.Time{}, bytes.NewReader(file))
}

// cutter breaks the connection after so many bytes.
type cutter struct {
	http.ResponseWriter
	left int
	hang bool
	ctx  context.Context
}

func (c *cutter) Write(p []byte) (int, error) {
	n := min(len(p), c.left)
	c.left -= n
	if _, err := c.ResponseWriter.Write(p[:n]); err != nil {
		return 0, err
	}
	if n < len(p) {
		c.ResponseWriter.(http.Flusher).Flush()
		if c.hang {
			<-c.ctx.Done()
		}
		panic(http.ErrAbortHandler)
	}
	return n, nil
}

// ReadFrom keeps the server from going around Write.
func (c *cutter) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{c}, r)
}

func quick() *fetcher {
	f := newFetcher(func(string) {})
	f.client, f.pause, f.every = &http.Client{Transport: &http.Transport{}}, time.Millisecond, 0
	return f
}

func TestFetch(t *testing.T) {
	whole := content(1 << 20)
	other := content(1<<20 + 5)[5:]
	for _, test := range []struct {
		name     string
		link     badLink
		want     []byte
		requests int
	}{
		{"in one go", badLink{file: whole, part: 2 << 20}, whole, 1},
		{"in parts", badLink{file: whole, part: 300_000, tag: "a"}, whole, 4},
		{"in parts, by size alone", badLink{file: whole, part: 300_000}, whole, 4},
		{"with silences", badLink{file: whole, part: 600_000, tag: "a", hang: true}, whole, 2},
		{"something else behind it", badLink{file: whole, part: 600_000, tag: "a", changed: other}, whole, 2},
		{"something else in the middle", badLink{file: whole, changed: other, part: 500_000, tag: "a"}, other, 5},
		{"something shorter in the middle", badLink{file: whole, changed: whole[:100], part: 500_000}, whole[:100], 4},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := httptest.NewServer(&test.link)
			defer server.Close()
			f := quick()
			if test.link.hang {
				f.stall = 500 * time.Millisecond
			}
			path := filepath.Join(t.TempDir(), "bundle")
			if err := f.fetch(t.Context(), server.URL, path); err != nil {
				t.Fatal(err)
			}
			server.Close() // every request has ended then
			got, err := os.ReadFile(path)
			if err != nil || !bytes.Equal(got, test.want) {
				t.Errorf("got %d bytes and %v, want %d, the right ones", len(got), err, len(test.want))
			}
			if test.link.requests != test.requests {
				t.Errorf("got %d requests %q, want %d", test.link.requests, test.link.ranges, test.requests)
			}
		})
	}
}

func TestFetchEnds(t *testing.T) {
	whole := content(100_000)
	for _, test := range []struct {
		name    string
		handler http.Handler
		change  func(*fetcher)
		want    string
	}{
		{"too large", &badLink{file: whole, part: 1 << 20}, func(f *fetcher) { f.limit = 99_999 }, "larger than 0.1 MB"},
		{"too large, of unknown size", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for range 10 {
				if _, err := w.Write(whole); err != nil {
					return // the client has enough
				}
			}
		}), func(f *fetcher) { f.limit = 200_000 }, "larger than 0.2 MB"},
		{"no progress", &badLink{file: whole, part: 50_000, noRanges: true}, func(f *fetcher) { f.patience = 50 * time.Millisecond }, "nothing more came for 50ms"},
		{"not allowed", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }), func(*fetcher) {}, "403 Forbidden: check the URL"},
		{"server down", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }),
			func(f *fetcher) { f.patience = 50 * time.Millisecond }, "502 Bad Gateway; try again over a better link"},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := httptest.NewServer(test.handler)
			defer server.Close()
			f := quick()
			test.change(f)
			path := filepath.Join(t.TempDir(), "bundle")
			if err := f.fetch(t.Context(), server.URL, path); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if _, err := os.Stat(path); !os.IsNotExist(err) {
				t.Errorf("the file is still there: %v", err)
			}
		})
	}
}

func TestFetchWithoutTrust(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // the handshake ends early, as it should
	server.StartTLS()
	defer server.Close()
	if err := quick().fetch(t.Context(), server.URL, filepath.Join(t.TempDir(), "bundle")); err == nil || !strings.Contains(err.Error(), "SSL_CERT_FILE") {
		t.Errorf("got %v, want what to do about the certificate", err)
	}
}

func TestFetchIsStopped(t *testing.T) {
	server := httptest.NewServer(&badLink{file: content(100_000), part: 50_000, hang: true})
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f := quick()
	f.say = func(string) { cancel() }
	if err := f.fetch(ctx, server.URL, filepath.Join(t.TempDir(), "bundle")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}
