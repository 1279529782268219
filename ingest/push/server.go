package push

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"sluice/ingest"
	"sluice/reading"
	"sluice/reading/senml"
)

// Path is where the server takes batches.
const Path = "/v1/batches"

const (
	appendPatience = time.Second      // how long a full sink is waited for
	commitPatience = 30 * time.Second // how long a commit is waited for
	readPatience   = 30 * time.Second // how long a body may take to arrive
	retryAfter     = 5                // seconds, when the sink is busy
	retryFull      = 60               // seconds, when storage is full

	maxID     = 128 // bytes of a batch id or a node's name
	decodings = 2   // at once: readings take several times their body's memory
)

// Options are what a Server works with.
type Options struct {
	Sink ingest.Sink
	// Pushed is told of each batch before the sink is, and may change its lane.
	Pushed func(*reading.Batch)
	// Now stamps readings that come without a time.
	Now func() reading.Time
	// Tokens are the nodes by their secrets. If there are none, anyone may push
	// under the name that the request's Node header says.
	Tokens map[string]string
	// MaxBody is how many bytes a pack may have, decompressed.
	MaxBody int64
	Logger  *slog.Logger
}

// Server is the HTTP handler that takes batches (POST /v1/batches) and answers
// 204 when they are on disk. Every other answer has a body in plain English
// that says what to do; a sender that repeats what was not accepted, with the
// same Batch-Id, loses nothing and stores nothing twice.
type Server struct {
	options Options
	// nodes by hashes of their tokens, so that how long a look-up takes tells
	// nothing about a token.
	nodes   map[[sha256.Size]byte]string
	decoder chan struct{} // holds a place for each decoding at work

	accepted, refused atomic.Uint64
}

// Stats counts requests since the server was made.
type Stats struct {
	Accepted uint64 // batches that are on disk
	Refused  uint64 // requests with any other answer, which their senders know
}

// Stats returns the counters.
func (s *Server) Stats() Stats {
	return Stats{Accepted: s.accepted.Load(), Refused: s.refused.Load()}
}

var _ http.Handler = (*Server)(nil)

// New returns a Server.
func New(o Options) *Server {
	s := &Server{
		options: o,
		nodes:   make(map[[sha256.Size]byte]string),
		decoder: make(chan struct{}, decodings),
	}
	for token, node := range o.Tokens {
		s.nodes[sha256.Sum256([]byte(token))] = node
	}
	return s
}

// refusal is an answer other than 204.
type refusal struct {
	status int
	text   string
	after  int // Retry-After in seconds, if not 0
}

func (r *refusal) Error() string { return r.text }

func refuse(status int, format string, args ...any) *refusal {
	return &refusal{status: status, text: fmt.Sprintf(format, args...)}
}

// ServeHTTP takes one batch.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	refused := s.serve(w, r)
	if refused == nil {
		s.accepted.Add(1)
		w.WriteHeader(http.StatusNoContent)
		return
	}
	s.refused.Add(1)
	s.options.Logger.Debug("push refused", "from", r.RemoteAddr, "status", refused.status, "reason", refused.text)
	h := w.Header()
	switch refused.status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="sluice"`)
	case http.StatusMethodNotAllowed:
		h.Set("Allow", http.MethodPost)
	}
	if refused.after > 0 {
		h.Set("Retry-After", strconv.Itoa(refused.after))
	}
	http.Error(w, refused.text, refused.status)
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) *refusal {
	if r.URL.Path != Path {
		return refuse(http.StatusNotFound, "nothing is here: POST batches to %s", Path)
	}
	if r.Method != http.MethodPost {
		return refuse(http.StatusMethodNotAllowed, "method %s: batches are sent with POST", r.Method)
	}
	node, refused := s.node(r)
	if refused != nil {
		return refused
	}
	contentType, refused := typeOf(r.Header.Get("Content-Type"))
	if refused != nil {
		return refused
	}
	encoding := strings.ToLower(r.Header.Get("Content-Encoding"))
	switch encoding {
	case "", "identity", "gzip", "zstd":
	case "x-gzip":
		encoding = "gzip"
	default:
		return refuse(http.StatusUnsupportedMediaType, "content encoding %.40q: use gzip, zstd or none", encoding)
	}
	id := r.Header.Get("Batch-Id")
	if len(id) > maxID {
		return refuse(http.StatusBadRequest, "header Batch-Id has %d characters: use at most %d", len(id), maxID)
	}

	body, refused := s.read(w, r)
	if refused != nil {
		return refused
	}
	ctx, cancel := context.WithTimeout(r.Context(), appendPatience)
	defer cancel()
	select {
	case s.decoder <- struct{}{}:
	case <-ctx.Done():
		return busy(ingest.ErrBusy)
	}
	done, refused := s.store(ctx, contentType, encoding, node, id, body)
	<-s.decoder
	if refused != nil {
		return refused
	}
	return wait(r.Context(), done)
}

// read reads the body, as it came.
func (s *Server) read(w http.ResponseWriter, r *http.Request) ([]byte, *refusal) {
	if r.ContentLength > s.options.MaxBody {
		return nil, tooLarge(&TooLargeError{s.options.MaxBody})
	}
	// A sender that stops in the middle must not hold memory for ever. Some
	// ResponseWriters have no deadlines; then the http.Server's hold.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(readPatience))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.options.MaxBody))
	if err != nil {
		if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return nil, tooLarge(&TooLargeError{large.Limit})
		}
		return nil, refuse(http.StatusBadRequest, "the body ended early (%v): send the batch again", err)
	}
	return body, nil
}

// store decodes body and hands it to the sink. The channel gets the outcome of
// the commit.
func (s *Server) store(ctx context.Context, contentType, encoding, node, id string, body []byte) (<-chan error, *refusal) {
	batch, err := decode(contentType, encoding, node, body, s.options.Now(), s.options.MaxBody)
	if err != nil {
		return nil, faulty(err)
	}
	if id != "" {
		batch.Receipt = receipt(node, id)
	}
	s.options.Pushed(&batch)
	done := make(chan error, 1)
	if err := s.options.Sink.Append(ctx, batch, func(err error) { done <- err }); err != nil {
		return nil, unstored(err)
	}
	return done, nil
}

// wait returns when the batch is on disk, or can be answered otherwise.
func wait(ctx context.Context, done <-chan error) *refusal {
	timer := time.NewTimer(commitPatience)
	defer timer.Stop()
	select {
	case err := <-done:
		if err != nil {
			return unstored(err)
		}
		return nil
	case <-ctx.Done():
		return refuse(http.StatusServiceUnavailable, "the connection ended before the batch was on disk: send it again with the same Batch-Id")
	case <-timer.C:
		return &refusal{http.StatusServiceUnavailable,
			"the disk has not answered yet: keep the batch and send it again with the same Batch-Id", retryAfter}
	}
}

func faulty(err error) *refusal {
	if large, ok := errors.AsType[*TooLargeError](err); ok {
		return tooLarge(large)
	}
	switch {
	case errors.Is(err, senml.ErrTooMany):
		return refuse(http.StatusRequestEntityTooLarge, "%v", err)
	case errors.Is(err, ErrType):
		return refuse(http.StatusUnsupportedMediaType, "%v", err)
	}
	return refuse(http.StatusBadRequest, "%v", err)
}

func tooLarge(err *TooLargeError) *refusal {
	return refuse(http.StatusRequestEntityTooLarge, "the batch has %v", err)
}

func unstored(err error) *refusal {
	if errors.Is(err, ingest.ErrBusy) || errors.Is(err, ingest.ErrFull) {
		return busy(err)
	}
	return &refusal{http.StatusServiceUnavailable,
		fmt.Sprintf("the batch was not stored (%v): keep it and send it again with the same Batch-Id", err), retryAfter}
}

func busy(err error) *refusal {
	after := retryAfter
	if errors.Is(err, ingest.ErrFull) {
		after = retryFull
	}
	return &refusal{http.StatusTooManyRequests, err.Error(), after}
}

// node returns who sends.
func (s *Server) node(r *http.Request) (string, *refusal) {
	name := r.Header.Get("Node")
	user, password, basic := r.BasicAuth()
	if basic && name == "" {
		name = user
	}
	if len(s.nodes) == 0 {
		if !validName(name) {
			return "", refuse(http.StatusBadRequest, "say which node sends: add the header \"Node: NAME\", 1 to %d characters", maxID)
		}
		return name, nil
	}
	token := password
	if !basic {
		scheme, rest, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return "", refuse(http.StatusUnauthorized, "a token is needed: add the header \"Authorization: Bearer TOKEN\"")
		}
		token = strings.TrimSpace(rest)
	}
	node, ok := s.nodes[sha256.Sum256([]byte(token))]
	if !ok {
		return "", refuse(http.StatusUnauthorized, "the token is not known here: check it against the gateway's [[push.node]]")
	}
	if name != "" && name != node {
		return "", refuse(http.StatusUnauthorized, "the token is not that of node %.128q: leave the name out or correct it", name)
	}
	return node, nil
}

func validName(s string) bool {
	return s != "" && len(s) <= maxID && utf8.ValidString(s) && strings.IndexFunc(s, unicode.IsControl) < 0
}

// typeOf returns the media type without parameters; empty if none is said.
func typeOf(header string) (string, *refusal) {
	if header == "" {
		return "", nil
	}
	t, _, err := mime.ParseMediaType(header)
	if err == nil {
		switch t {
		case senml.JSON, senml.CBOR, "application/json":
			return t, nil
		}
	}
	return "", refuse(http.StatusUnsupportedMediaType, "content type %.80q: send %s or %s", header, senml.JSON, senml.CBOR)
}
