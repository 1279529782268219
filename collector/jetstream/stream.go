package jetstream

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// ensureStream creates the stream, or updates the limits of the one that is
// there and leaves everything else as its owner set it.
func ensureStream(ctx context.Context, js jetstream.JetStream, opts Options) (jetstream.Stream, error) {
	existing, err := js.Stream(ctx, opts.Stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		s, err := js.CreateStream(ctx, jetstream.StreamConfig{
			Name:        opts.Stream,
			Description: "readings delivered by Sluice gateways",
			Subjects:    []string{prefix + ".>"},
			Retention:   jetstream.LimitsPolicy,
			Discard:     jetstream.DiscardOld,
			Storage:     jetstream.FileStorage,
			MaxBytes:    unlimited(opts.MaxBytes),
			MaxAge:      opts.MaxAge,
			Replicas:    max(1, opts.Replicas),
			Compression: jetstream.S2Compression,
			// Messages are told apart by their subject's last one; a window of
			// message ids would only cost memory.
			Duplicates: 0,
		})
		if err != nil {
			return nil, fmt.Errorf("create stream %s: %w", opts.Stream, err)
		}
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up stream %s: %w", opts.Stream, err)
	}
	cfg := existing.CachedInfo().Config
	if err := check(cfg); err != nil {
		return nil, fmt.Errorf("stream %s: %w", opts.Stream, err)
	}
	want := cfg
	want.MaxBytes = unlimited(opts.MaxBytes)
	want.MaxAge = opts.MaxAge
	want.Replicas = max(1, opts.Replicas)
	if want.MaxBytes == cfg.MaxBytes && want.MaxAge == cfg.MaxAge && want.Replicas == cfg.Replicas {
		return existing, nil
	}
	s, err := js.UpdateStream(ctx, want)
	if err != nil {
		return nil, fmt.Errorf("update limits of stream %s: %w", opts.Stream, err)
	}
	return s, nil
}

// check refuses a stream that would forget what was delivered, or never hold
// it.
func check(cfg jetstream.StreamConfig) error {
	switch {
	case len(cfg.Subjects) != 1 || cfg.Subjects[0] != prefix+".>":
		return fmt.Errorf("its subjects are %q, not %q: change them or choose another stream", cfg.Subjects, prefix+".>")
	case cfg.Retention != jetstream.LimitsPolicy:
		return fmt.Errorf("its retention is %v, which deletes what consumers have read: choose another stream", cfg.Retention)
	case cfg.Storage != jetstream.FileStorage:
		return errors.New("it is kept in memory only: choose another stream")
	case cfg.MaxMsgsPerSubject > 0:
		return fmt.Errorf("it keeps only %d messages a subject: remove max_msgs_per_subject", cfg.MaxMsgsPerSubject)
	case cfg.NoAck:
		return errors.New("it does not acknowledge: remove no_ack")
	case cfg.AllowRollup:
		return errors.New("it lets one message replace all others: remove allow_rollup_hdrs")
	}
	return nil
}

func unlimited(n int64) int64 {
	if n == 0 {
		return -1
	}
	return n
}
