package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"syscall"
	"time"
)

// maxStatus bounds what is read of a status document, in bytes.
const maxStatus = 4 << 20

// Fetch asks the gateway behind a local socket for its status. It returns the
// document as it came, too.
func Fetch(ctx context.Context, socket string) (Status, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
		DisableKeepAlives: true,
	}
	fail := func(err error) (Status, []byte, error) {
		switch {
		case errors.Is(err, fs.ErrPermission):
			err = fmt.Errorf("%w; ask as root or as a member of the socket's group", err)
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
			err = fmt.Errorf("%w; is the gateway running, and with this configuration?", err)
		}
		return Status{}, nil, fmt.Errorf("status from %s: %w", socket, err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://gateway/status", nil)
	if err != nil {
		return fail(err)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return fail(err)
	}
	defer response.Body.Close()
	document, err := io.ReadAll(io.LimitReader(response.Body, maxStatus))
	if err != nil {
		return fail(err)
	}
	if response.StatusCode != http.StatusOK {
		return fail(fmt.Errorf("answer %s", response.Status))
	}
	var s Status
	if err := json.Unmarshal(document, &s); err != nil {
		return fail(err)
	}
	if s.StatusVersion != StatusVersion {
		return fail(fmt.Errorf("the gateway's status has version %d, this program reads %d: use the same version of both", s.StatusVersion, StatusVersion))
	}
	return s, document, nil
}
