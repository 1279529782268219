package push

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"sluice/reading/senml"
)

// Client sends batches to a Server and keeps at it until they are accepted.
type Client struct {
	URL   string // of the gateway: "http://gateway:8080/v1/batches"
	Node  string // the sender's name, if the gateway does not know it by Token
	Token string // its secret, or empty
	HTTP  *http.Client
	// Random is needed. It returns numbers in [0, 1): waits are spread by it, so that many
	// nodes do not come back at once.
	Random func() float64
	// Progress, if set, is told after each try.
	Progress func(Progress)
}

// Progress is where the sending of a batch stands after a try.
type Progress struct {
	BatchID string
	Try     int           // counted from 1
	Err     error         // why the try failed; nil once accepted
	Wait    time.Duration // until the next try
}

const (
	firstWait = time.Second
	maxWait   = time.Minute
	maxAsked  = time.Hour        // of Retry-After
	tryTime   = 90 * time.Second // longer than the server waits for its disk
	maxReason = 4096             // bytes of an answer that are read
)

// RefusedError is returned when the gateway will never accept the batch as it
// is.
type RefusedError struct {
	Status int    // the HTTP status; 0 if the request cannot even be made
	Reason string // what the gateway says
}

func (e *RefusedError) Error() string {
	if e.Status == 0 {
		return e.Reason
	}
	return fmt.Sprintf("gateway refuses it (%d): %s", e.Status, e.Reason)
}

// Push sends body, a pack of the given media type, under batchID until it is
// accepted; the same id on every try. It waits longer after each failure, up to
// a minute, or as long as the gateway asks, and never gives up before ctx ends,
// except for a *RefusedError.
func (c *Client) Push(ctx context.Context, body []byte, contentType, batchID string) error {
	wait := firstWait
	for try := 1; ; try++ {
		asked, err := c.try(ctx, body, contentType, batchID)
		if refused, ok := errors.AsType[*RefusedError](err); ok || err == nil {
			c.report(Progress{BatchID: batchID, Try: try, Err: err})
			if err == nil {
				return nil
			}
			return refused
		}
		// Between half and the whole of the wait, but no less than was asked.
		pause := max(wait/2+time.Duration(c.Random()*float64(wait/2)), asked)
		wait = min(2*wait, maxWait)
		if ctx.Err() == nil {
			c.report(Progress{BatchID: batchID, Try: try, Err: err, Wait: pause})
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("not accepted after %d tries (%w): %w", try, err, ctx.Err())
		}
	}
}

func (c *Client) report(p Progress) {
	if c.Progress != nil {
		c.Progress(p)
	}
}

// try sends the batch once, and returns how long the gateway asks to wait.
func (c *Client) try(ctx context.Context, body []byte, contentType, batchID string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, bytes.NewReader(body))
	if err != nil {
		return 0, &RefusedError{Reason: err.Error()}
	}
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("Batch-Id", batchID)
	if c.Node != "" {
		r.Header.Set("Node", c.Node)
	}
	if c.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.Token)
	}
	answer, err := c.HTTP.Do(r)
	if err != nil {
		return 0, unanswered(err)
	}
	defer answer.Body.Close()
	reason, _ := io.ReadAll(io.LimitReader(answer.Body, maxReason))
	text := strings.TrimSpace(string(reason))
	switch s := answer.StatusCode; {
	case s >= 200 && s < 300:
		return 0, nil
	case s == http.StatusTooManyRequests, s == http.StatusRequestTimeout, s >= 500:
		return retryAfterOf(answer, time.Now()), fmt.Errorf("gateway answers %d: %s", s, text)
	default:
		return 0, &RefusedError{Status: s, Reason: text}
	}
}

// unanswered says why no answer came: with what to do where waiting will not help.
func unanswered(err error) error {
	if outer, ok := errors.AsType[*url.Error](err); ok {
		err = outer.Err // without the address, which is known
	}
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		err = dial.Err
	}
	remedy := ""
	switch text := err.Error(); {
	case errors.Is(err, http.ErrSchemeMismatch):
		remedy = "; write http:// instead of https://"
	case strings.Contains(text, "malformed HTTP"):
		// The rest is what the other program said.
		return errors.New("what answers there is no gateway; check the port")
	case strings.Contains(text, "x509: ") || strings.Contains(text, "tls: "):
		remedy = "; check the gateway's certificate, and name the file of its authority in SSL_CERT_FILE"
	}
	return fmt.Errorf("no answer: %w%s", err, remedy)
}

// retryAfterOf reads the Retry-After header, in seconds or as a date (RFC 9110,
// 10.2.3).
func retryAfterOf(r *http.Response, now time.Time) time.Duration {
	header := r.Header.Get("Retry-After")
	var d time.Duration
	if seconds, err := strconv.ParseUint(header, 10, 31); err == nil {
		d = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(header); err == nil {
		d = at.Sub(now)
	}
	return min(max(d, 0), maxAsked)
}

// Part is one batch of a larger pack.
type Part struct {
	ID   string
	Body []byte
}

// Bounds of a part, well below what a gateway takes in one batch.
const (
	partRecords = 10_000
	partBytes   = 1 << 20
)

// Parts cuts a pack into batches that a gateway takes, with ids that are the
// same whenever the same pack is cut. contentType is senml.JSON or senml.CBOR;
// see TypeOf. The error is a *senml.RecordError.
func Parts(pack []byte, contentType string) ([]Part, error) {
	bodies, err := senml.Split(pack, contentType, partRecords, partBytes)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(pack)
	parts := make([]Part, len(bodies))
	for i, body := range bodies {
		parts[i] = Part{ID: fmt.Sprintf("%x-%d-of-%d", sum[:16], i+1, len(bodies)), Body: body}
	}
	return parts, nil
}
