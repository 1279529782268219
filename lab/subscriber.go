package lab

import (
	"context"
	"fmt"
	"net"
	"time"
)

// Subscriber counts what a broker hands out.
type Subscriber struct {
	c *mqttConn
}

// Subscribe connects to a broker and subscribes to everything, at QoS 0.
func Subscribe(ctx context.Context, address string) (*Subscriber, error) {
	c, err := dialMQTT(ctx, (&net.Dialer{}).DialContext, address, "lab-subscriber", true)
	if err != nil {
		return nil, err
	}
	if err := c.subscribe("#", 0); err != nil {
		c.Close()
		return nil, err
	}
	return &Subscriber{c: c}, nil
}

// Await returns when n more messages have come.
func (s *Subscriber) Await(ctx context.Context, n uint64) error {
	stop := context.AfterFunc(ctx, func() { s.c.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	for seen := uint64(0); seen < n; {
		kind, _, err := s.c.next()
		if err != nil {
			return fmt.Errorf("read from broker after %d of %d messages: %w", seen, n, err)
		}
		if kind&0xf0 == mqttPublish {
			seen++
		}
	}
	return nil
}

// Close ends the subscription.
func (s *Subscriber) Close() error { return s.c.Close() }
