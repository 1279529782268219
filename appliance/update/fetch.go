package update

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"
)

// maxBundle is the largest bundle that is fetched, in bytes: a system of 256 MiB
// and what surrounds it.
const maxBundle = 300 << 20

// fetcher downloads a file over links that break.
type fetcher struct {
	client   *http.Client
	limit    int64         // bytes
	stall    time.Duration // a connection without a byte for so long is given up
	pause    time.Duration // before the next one
	patience time.Duration // the download is given up if it has not become longer for so long
	every    time.Duration // between two lines of progress
	say      func(string)
}

func newFetcher(say func(string)) *fetcher {
	return &fetcher{client: http.DefaultClient, limit: maxBundle, stall: time.Minute, pause: 5 * time.Second,
		patience: 10 * time.Minute, every: 10 * time.Second, say: say}
}

// download is a file of which a part has come.
type download struct {
	url       string
	file      *os.File
	done      int64  // bytes
	total     int64  // -1 if unknown
	validator string // of what has come: an ETag or a date, or empty
	longest   int64  // the most that done was
	grew      time.Time
	shown     time.Time
}

// fatal is an error that another try does not mend.
type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

// fetch writes what is at url to a new file. It goes on where a broken connection
// ended. On an error there is no file.
func (f *fetcher) fetch(ctx context.Context, url, path string) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, file.Close()); err != nil {
			_ = os.Remove(path)
		}
	}()
	d := &download{url: url, file: file, total: -1, grew: time.Now()}
	for {
		err := f.try(ctx, d)
		if err == nil {
			f.say(fmt.Sprintf("fetched %s", megabytes(d.done)))
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if lasting, ok := errors.AsType[fatal](err); ok {
			return fmt.Errorf("fetch %s: %w", url, lasting.error)
		}
		if time.Since(d.grew) > f.patience {
			return fmt.Errorf("fetch %s: nothing more came for %s: %w; try again over a better link", url, f.patience, err)
		}
		f.say(fmt.Sprintf("fetch: %v; goes on in %s at %s", err, f.pause, megabytes(d.done)))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(f.pause):
		}
	}
}

// try makes one request for what is missing.
func (f *fetcher) try(ctx context.Context, d *download) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(f.stall, func() { cancel(fmt.Errorf("nothing came for %s", f.stall)) })
	defer watch.Stop()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url, nil)
	if err != nil {
		return fatal{err}
	}
	request.Header.Set("Accept-Encoding", "identity") // ranges count the file's own bytes
	if d.done > 0 {
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-", d.done))
		if d.validator != "" {
			request.Header.Set("If-Range", d.validator) // what has changed comes whole
		}
	}
	response, err := f.client.Do(request)
	if err != nil {
		if wrong, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
			return fatal{fmt.Errorf("%w; name the file of its authority in the environment as SSL_CERT_FILE, and see that the clock is set", wrong)}
		}
		return cause(ctx, err)
	}
	defer response.Body.Close()
	if err := d.begin(response, f.limit); err != nil {
		return err
	}
	return f.copy(ctx, d, response.Body, watch)
}

// begin takes note of what an answer's head says.
func (d *download) begin(r *http.Response, limit int64) error {
	switch code := r.StatusCode; {
	case code == http.StatusPartialContent:
		var first, last, total int64
		if _, err := fmt.Sscanf(r.Header.Get("Content-Range"), "bytes %d-%d/%d", &first, &last, &total); err == nil && first == d.done && (d.total < 0 || d.total == total) {
			d.total = total
			break
		}
		if err := d.restart(-1); err != nil {
			return err
		}
		return errors.New("the server has something else by now: from the start again")
	case code == http.StatusOK:
		if err := d.restart(r.ContentLength); err != nil {
			return err
		}
	case code == http.StatusRequestedRangeNotSatisfiable:
		if err := d.restart(-1); err != nil {
			return err
		}
		return errors.New("the server has something shorter by now: from the start again")
	case code >= 500, code == http.StatusTooManyRequests, code == http.StatusRequestTimeout:
		return fmt.Errorf("the server answers %s", r.Status)
	default:
		return fatal{fmt.Errorf("the server answers %s: check the URL", r.Status)}
	}
	d.validator = r.Header.Get("ETag")
	if d.validator == "" || strings.HasPrefix(d.validator, "W/") { // RFC 9110, 13.1.5: a weak one is of no use
		d.validator = r.Header.Get("Last-Modified")
	}
	if d.total > limit {
		return fatal{tooLarge(limit)}
	}
	return nil
}

// restart forgets what has come.
func (d *download) restart(total int64) error {
	d.done, d.total = 0, total
	if err := d.file.Truncate(0); err != nil {
		return fatal{err}
	}
	return nil
}

// copy writes a body to the file, and puts off watch as long as something comes.
func (f *fetcher) copy(ctx context.Context, d *download, body io.Reader, watch *time.Timer) error {
	buffer := make([]byte, 64<<10)
	for {
		n, err := body.Read(buffer)
		if n > 0 {
			watch.Reset(f.stall)
			if d.done+int64(n) > f.limit {
				return fatal{tooLarge(f.limit)}
			}
			if _, err := d.file.WriteAt(buffer[:n], d.done); err != nil {
				if errors.Is(err, syscall.ENOSPC) {
					err = fmt.Errorf("%w: the data partition is full; let the gateway deliver its backlog first", err)
				}
				return fatal{err}
			}
			d.done += int64(n)
			f.progress(d)
		}
		if err == io.EOF && d.done < d.total {
			return errors.New("the server sent less than it has")
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return cause(ctx, err)
		}
	}
}

// progress notes that the download has become longer, and says so now and then.
func (f *fetcher) progress(d *download) {
	now := time.Now()
	if d.done > d.longest {
		d.longest, d.grew = d.done, now
	}
	if now.Sub(d.shown) < f.every {
		return
	}
	d.shown = now
	of := ""
	if d.total > 0 {
		of = " of " + megabytes(d.total)
	}
	f.say(fmt.Sprintf("fetched %s%s", megabytes(d.done), of))
}

func tooLarge(limit int64) error {
	return fmt.Errorf("larger than %s, which no bundle is: check the URL", megabytes(limit))
}

// cause is why a request ended: a context's cause, if it was ended.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
