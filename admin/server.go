package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Options say what is served where.
type Options struct {
	// Status returns the status at this moment, health included. It may be
	// called from several goroutines at once and must return soon.
	Status func() Status
	// Socket is the path of the local socket: GET /status and /healthz.
	Socket string
	// Listen is a TCP address for GET /metrics and /healthz; empty is none.
	Listen string
	Logger *slog.Logger
}

// Server serves the status.
type Server struct {
	options Options
	socket  *http.Server
	tcp     *http.Server
	address string
	wait    sync.WaitGroup
}

// Serve starts to listen. The socket can be used by its owner and group only.
func Serve(o Options) (*Server, error) {
	s := &Server{options: o}
	health := http.HandlerFunc(s.health)
	local, err := listenSocket(o.Socket)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", s.status)
	mux.Handle("GET /healthz", health)
	s.socket = s.serve(local, mux)
	if o.Listen == "" {
		return s, nil
	}
	tcp, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("metrics on %s: %w; choose another metrics.listen", o.Listen, err), s.Close())
	}
	s.address = tcp.Addr().String()
	mux = http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry(o.Status), promhttp.HandlerOpts{}))
	mux.Handle("GET /healthz", health)
	s.tcp = s.serve(tcp, mux)
	return s, nil
}

// Address is where the TCP listener listens, or "".
func (s *Server) Address() string { return s.address }

// Close stops both listeners and waits up to a second for answers under way.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var errs []error
	for _, h := range []*http.Server{s.socket, s.tcp} {
		if h == nil {
			continue
		}
		if err := h.Shutdown(ctx); err != nil {
			errs = append(errs, h.Close())
		}
	}
	s.wait.Wait()
	// Remove only what this server put there.
	os.Remove(s.options.Socket)
	return errors.Join(errs...)
}

func (s *Server) serve(l net.Listener, h http.Handler) *http.Server {
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		WriteTimeout:      10 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    8 << 10,
		ErrorLog:          slog.NewLogLogger(s.options.Logger.Handler(), slog.LevelDebug),
	}
	s.wait.Go(func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.options.Logger.Error("status is no longer served", "address", l.Addr().String(), "error", err)
		}
	})
	return server
}

func (s *Server) status(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	// An error here means that the reader went away.
	_ = e.Encode(s.options.Status())
}

// health answers 200 while readings move and 503 with the reasons if not.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	h := s.options.Status().Health
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if h.OK {
		fmt.Fprintln(w, "ok")
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	fmt.Fprintln(w, strings.Join(h.Reasons, "\n"))
}

// listenSocket listens on a local socket at path. A socket that a killed
// process left behind is replaced, one that answers is not.
func listenSocket(path string) (net.Listener, error) {
	fail := func(err error) (net.Listener, error) { return nil, fmt.Errorf("status socket %s: %w", path, err) }
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		c.Close()
		return fail(errors.New("a gateway runs already: stop it, or give this one another data_dir"))
	}
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSocket == 0 {
		return fail(errors.New("something else has this name: choose another status_socket"))
	}
	// It gets its permissions under another name, so that it never has wider
	// ones under its own.
	hidden := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%d", os.Getpid()))
	os.Remove(hidden)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: hidden, Net: "unix"})
	if err != nil {
		return fail(err)
	}
	l.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(hidden, 0o660), os.Rename(hidden, path)); err != nil {
		l.Close()
		os.Remove(hidden)
		return fail(err)
	}
	return l, nil
}
