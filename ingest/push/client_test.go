package push

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/ingest"
	"sluice/reading/senml"
)

// gateway answers requests in the test itself, without a network.
type gateway func(r *http.Request) (*http.Response, error)

func (g gateway) RoundTrip(r *http.Request) (*http.Response, error) { return g(r) }

func response(status int, text, retryAfter string) *http.Response {
	h := http.Header{}
	if retryAfter != "" {
		h.Set("Retry-After", retryAfter)
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(text))}
}

func client(g gateway) *Client {
	return &Client{
		URL: "http://gateway" + Path, Node: "n1", Token: "secret",
		HTTP: &http.Client{Transport: g}, Random: func() float64 { return 0.5 },
	}
}

func TestPushKeepsTrying(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := []func() (*http.Response, error){
			func() (*http.Response, error) { return nil, errors.New("no route to host") },
			func() (*http.Response, error) { return response(503, "disk", ""), nil },
			func() (*http.Response, error) { return response(429, "busy", "30"), nil },
			func() (*http.Response, error) {
				return response(429, "busy", time.Now().Add(20*time.Second).UTC().Format(http.TimeFormat)), nil
			},
			func() (*http.Response, error) { return response(500, "", "nonsense"), nil },
			func() (*http.Response, error) { return response(204, "", ""), nil },
		}
		var at []time.Duration
		start := time.Now()
		c := client(func(r *http.Request) (*http.Response, error) {
			at = append(at, time.Since(start))
			body, err := io.ReadAll(r.Body)
			if err != nil || string(body) != pack || r.Header.Get("Batch-Id") != "b1" || r.Header.Get("Node") != "n1" ||
				r.Header.Get("Content-Type") != senml.JSON || r.Header.Get("Authorization") != "Bearer secret" {
				t.Errorf("try %d: %s %v %v", len(at), body, r.Header, err)
			}
			return answers[len(at)-1]()
		})
		var seen []string
		c.Progress = func(p Progress) { seen = append(seen, fmt.Sprint(p.Try, p.Wait, p.Err != nil)) }
		if err := c.Push(t.Context(), []byte(pack), senml.JSON, "b1"); err != nil {
			t.Fatal(err)
		}
		// Three quarters of 1, 2, 4, 8, 16 s, or what the gateway asks; its dates are
		// in whole seconds.
		want := "[0s 750ms 2.25s 32.25s 52s 1m4s]"
		if got := fmt.Sprint(at); got != want {
			t.Errorf("tries at %s, want %s", got, want)
		}
		if got, want := fmt.Sprint(seen), "[1 750ms true 2 1.5s true 3 30s true 4 19.75s true 5 12s true 6 0s false]"; got != want {
			t.Errorf("progress %s, want %s", got, want)
		}
	})
}

// The wait stops growing, and only the end of ctx ends the trying.
func TestPushNeverGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		c := client(func(*http.Request) (*http.Response, error) {
			tries++
			return nil, errors.New("connection refused")
		})
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
		defer cancel()
		err := c.Push(ctx, nil, senml.JSON, "b1")
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("got %v", err)
		}
		if tries < 24*60 || tries > 2*24*60 {
			t.Errorf("%d tries in a day", tries)
		}
	})
}

func TestPushGivesUp(t *testing.T) {
	for _, status := range []int{400, 401, 413, 415} {
		tries := 0
		c := client(func(*http.Request) (*http.Response, error) {
			tries++
			return response(status, "record 3: no value\n", "5"), nil
		})
		err := c.Push(t.Context(), nil, senml.JSON, "b1")
		refused, ok := errors.AsType[*RefusedError](err)
		if !ok || refused.Status != status || refused.Reason != "record 3: no value" || tries != 1 {
			t.Errorf("%d: %v after %d tries", status, err, tries)
		}
	}
	c := client(nil)
	c.URL = "http://a b/"
	if err := c.Push(t.Context(), nil, senml.JSON, "b1"); err == nil {
		t.Error("an impossible address was tried")
	}
}

// F22: a gateway that is gone without a trace costs one try, not the batch.
func TestPushSilentGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, tries := time.Now(), 0
		c := client(func(r *http.Request) (*http.Response, error) {
			if tries++; tries == 1 {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			return response(204, "", ""), nil
		})
		if err := c.Push(t.Context(), nil, senml.JSON, "b1"); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d > 2*time.Minute {
			t.Errorf("took %v", d)
		}
	})
}

// Client and server over a real connection: an acknowledgement that is lost
// leaves one copy.
func TestPushOverHTTP(t *testing.T) {
	s := &sink{}
	handler, tries := server(s, nil), 0
	handler.options.MaxBody = 2e6
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if tries++; tries == 1 { // stored, but the answer never arrives
			handler.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		handler.ServeHTTP(w, r)
	}))
	defer srv.Close()
	var large strings.Builder
	large.WriteString(`[{"bn":"d/","bt":1422886740,"n":"a","v":0}`)
	for i := 1; i < 25_000; i++ {
		fmt.Fprintf(&large, `,{"n":"a","t":%d,"v":%d}`, i, i)
	}
	large.WriteString("]")
	parts, err := Parts([]byte(large.String()), TypeOf([]byte(large.String())))
	if err != nil || len(parts) != 3 {
		t.Fatalf("%d parts, %v", len(parts), err)
	}
	c := &Client{URL: srv.URL + Path, Node: "n1", HTTP: srv.Client(), Random: func() float64 { return 0 }}
	for _, p := range parts {
		if err := c.Push(t.Context(), p.Body, senml.JSON, p.ID); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.batches) != 3 || tries != 4 {
		t.Fatalf("%d batches after %d tries, want 3 after 4", len(s.batches), tries)
	}
	n := 0
	for _, b := range s.batches {
		for _, r := range b.Readings {
			if r.Device != "d" || r.Value.Raw() != fmt.Sprint(n) || r.Time.Wall != (1422886740+int64(n))*1e9 {
				t.Fatalf("reading %d is %+v", n, r)
			}
			n++
		}
	}
	again, _ := Parts([]byte(large.String()), senml.JSON)
	for i := range parts {
		if again[i].ID != parts[i].ID {
			t.Errorf("part %d has id %s, then %s", i, parts[i].ID, again[i].ID)
		}
	}
}

var _ ingest.Sink = (*sink)(nil)

// Why no answer came is said with what to do, and without what is known.
func TestUnanswered(t *testing.T) {
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	gone := httptest.NewServer(nil)
	gone.Close()
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	go func() {
		for c, err := other.Accept(); err == nil; c, err = other.Accept() {
			_, _ = c.Read(make([]byte, 1))
			_, _ = io.WriteString(c, "220 mail.example.org\r\n")
			c.Close()
		}
	}()
	for url, want := range map[string]string{
		gone.URL:                                 "no answer: connect: connection refused",
		strings.Replace(web.URL, "p:", "ps:", 1): "write http:// instead of https://",
		secure.URL:                               "name the file of its authority in SSL_CERT_FILE",
		"http://" + other.Addr().String():        "what answers there is no gateway; check the port",
	} {
		c := &Client{URL: url, HTTP: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
		if _, err := c.try(t.Context(), nil, "", ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", url, err, want)
		}
	}
}
