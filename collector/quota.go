package collector

import (
	"context"
	"sync"
)

// quota is a number of bytes that many share.
type quota struct {
	mu    sync.Mutex // guards what follows
	total int
	free  int
	freed chan struct{} // closed and replaced when bytes come back
}

func newQuota(bytes int) *quota { return &quota{total: bytes, free: bytes, freed: make(chan struct{})} }

// take waits until something is left, then takes n, which may leave less than
// nothing: so one frame always passes, whatever its size.
func (q *quota) take(ctx context.Context, n int) error {
	for {
		q.mu.Lock()
		if q.free > 0 {
			q.free -= n
			q.mu.Unlock()
			return nil
		}
		freed := q.freed
		q.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// give returns n bytes.
func (q *quota) give(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	was := q.free
	q.free += n
	if was <= 0 && q.free > 0 {
		close(q.freed)
		q.freed = make(chan struct{})
	}
}

// spare takes n only if half is left afterwards, and never waits: what waits for
// something else to come must not keep that out.
func (q *quota) spare(n int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.free-n < q.total/2 {
		return false
	}
	q.free -= n
	return true
}

func (q *quota) used() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.total - q.free
}
