package lab

import (
	"context"
	"fmt"
	"time"

	"sluice/admin"
)

// Status asks the gateway for its status document.
func (s *Site) Status(ctx context.Context) (admin.Status, error) {
	status, _, err := admin.Fetch(ctx, s.path("gateway.sock"))
	return status, err
}

// AwaitStatus waits until the gateway's status is as it should.
func (s *Site) AwaitStatus(ctx context.Context, what string, ok func(admin.Status) bool) error {
	for {
		status, err := s.Status(ctx)
		if err == nil && ok(status) {
			return nil
		}
		if !pause(ctx, 50*time.Millisecond) {
			return fmt.Errorf("wait until %s: time is up; last status %+v, error %v", what, status, err)
		}
	}
}

// AwaitEmpty waits until nothing in the gateway's store waits for the collector.
func (s *Site) AwaitEmpty(ctx context.Context) error {
	return s.AwaitStatus(ctx, "the gateway's backlog is empty", func(status admin.Status) bool {
		backlog, _ := status.Store.Backlog()
		return backlog == 0
	})
}
