// Package jsonl keeps delivered readings in files of JSON lines, one reading a
// line, for those who read files.
//
// Each gateway and lane has a folder of its own:
//
//	<dir>/<gateway>/<lane>/<epoch>-<first sequence number>.jsonl
//
// so the last line of a stream's newest file is all the memory that delivering
// once needs. docs/stream.md has the members of a line.
package jsonl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"sluice/collector"
	"sluice/collector/lock"
	"sluice/collector/pack"
)

// chunkBytes is how much is written between syncs. After a power cut that much
// at the end of a file may be anything, so that much is checked.
const chunkBytes = 4 << 20

// Options say where the files are and when they go.
type Options struct {
	Dir         string
	RotateBytes int64 // a file that has reached it is followed by a new one; 0 never
	Keep        int   // newest files kept in a folder; 0 keeps all
}

// Output writes files. It is safe for concurrent use.
type Output struct {
	opts Options
	lock *os.File

	mu     sync.Mutex // guards files
	files  map[collector.Stream]file
	closed bool
}

var _ collector.Output = (*Output)(nil)

// Open takes the folder, creating it if need be. Only one process may have it.
func Open(opts Options) (*Output, error) {
	if err := makeDir(opts.Dir); err != nil {
		return nil, fmt.Errorf("open files output: %w", err)
	}
	held, err := lock.Dir(opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("open files output: %w", err)
	}
	return &Output{opts: opts, lock: held, files: make(map[collector.Stream]file)}, nil
}

// Name implements collector.Output.
func (o *Output) Name() string { return "files" }

// Last implements collector.Output.
func (o *Output) Last(ctx context.Context, s collector.Stream) (uint64, error) {
	f, err := o.file(ctx, s)
	return f.last, err
}

// file returns s's newest file, read from the folder the first time.
func (o *Output) file(ctx context.Context, s collector.Stream) (file, error) {
	if err := ctx.Err(); err != nil {
		return file{}, err
	}
	o.mu.Lock()
	f, known := o.files[s]
	closed := o.closed
	o.mu.Unlock()
	if closed {
		return file{}, errClosed
	}
	if known {
		return f, nil
	}
	f, err := newest(o.folder(s), s.Epoch)
	if err != nil {
		return file{}, fmt.Errorf("read the last line of %s lane %s: %w", s.Gateway, s.Lane, err)
	}
	o.remember(s, f)
	return f, nil
}

func (o *Output) remember(s collector.Stream, f file) {
	o.mu.Lock()
	o.files[s] = f
	o.mu.Unlock()
}

func (o *Output) forget(s collector.Stream) {
	o.mu.Lock()
	delete(o.files, s)
	o.mu.Unlock()
}

func (o *Output) folder(s collector.Stream) string {
	return filepath.Join(o.opts.Dir, pack.Escape(s.Gateway), s.Lane.String())
}

// Write implements collector.Output. What an error leaves behind is a beginning
// of ds, and Last tells how much of it.
func (o *Output) Write(ctx context.Context, s collector.Stream, after uint64, ds []collector.Delivery) error {
	f, err := o.file(ctx, s)
	if err != nil {
		return err
	}
	if f.last != after {
		return collector.ErrConflict
	}
	if len(ds) == 0 {
		return nil
	}
	if f, err = o.write(ctx, s, f, ds); err != nil {
		o.forget(s)
		return fmt.Errorf("write readings of %s lane %s: %w", s.Gateway, s.Lane, err)
	}
	o.remember(s, f)
	return nil
}

func (o *Output) write(ctx context.Context, s collector.Stream, f file, ds []collector.Delivery) (file, error) {
	folder := o.folder(s)
	if f.path == "" || o.opts.RotateBytes > 0 && f.size >= o.opts.RotateBytes {
		next, err := create(folder, s.Epoch, ds[0].First)
		if err != nil {
			return f, err
		}
		next.last = f.last
		f = next
		if o.opts.Keep > 0 {
			if err := prune(folder, s.Epoch, o.opts.Keep); err != nil {
				return f, err
			}
		}
	}
	w, err := f.appender()
	if err != nil {
		return f, err
	}
	defer w.close()
	stream := appendStream(nil, s)
	for _, d := range ds {
		if d.Unreadable != nil {
			w.buf = appendUnreadable(w.buf, stream, d)
			w.last = d.Last()
		}
		for i := range d.Readings {
			w.buf = appendLine(w.buf, stream, d.First+uint64(i), &d.Readings[i])
			w.last = d.First + uint64(i)
			if len(w.buf) >= chunkBytes {
				if err := errors.Join(ctx.Err(), w.flush()); err != nil {
					return f, err
				}
			}
		}
	}
	if err := w.flush(); err != nil {
		return f, err
	}
	return w.file, nil
}

// errClosed is returned by an output after Close.
var errClosed = errors.New("files output: closed")

// Close implements collector.Output. It gives the folder free.
func (o *Output) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil
	}
	o.closed = true
	return o.lock.Close()
}
