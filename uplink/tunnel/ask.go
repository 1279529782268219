package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"sluice/uplink"
	"sluice/uplink/wire"
)

const (
	askTimeout = 10 * time.Second // of an exchange that the collector does not answer
	retryMost  = time.Hour        // however long the collector would have a gateway wait
)

// RefusedError is returned by Ask when the collector says no.
type RefusedError struct {
	Reason     string
	RetryAfter time.Duration // how long the collector would have the gateway wait
}

// Error implements error.
func (e *RefusedError) Error() string { return "refused by the collector: " + e.Reason }

// Ask sends a request for tunnels over a carrier on which nothing was said yet,
// returns the answer, and closes the carrier.
func Ask(ctx context.Context, c uplink.Carrier, req wire.TunnelRequest) (wire.TunnelReply, error) {
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	reply, err := ask(c, req)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return wire.TunnelReply{}, fmt.Errorf("ask for tunnels: %w", err)
	}
	return reply, nil
}

func ask(c uplink.Carrier, req wire.TunnelRequest) (wire.TunnelReply, error) {
	if err := c.SetDeadline(time.Now().Add(askTimeout)); err != nil {
		return wire.TunnelReply{}, err
	}
	if _, err := c.Write(wire.AppendTunnelRequest(nil, req)); err != nil {
		return wire.TunnelReply{}, err
	}
	t, body, err := wire.NewReader(c, wire.MaxHandshake).Next()
	if err != nil {
		return wire.TunnelReply{}, fmt.Errorf("no answer, perhaps from a collector older than tunnels: %w", err)
	}
	switch t {
	case wire.TypeTunnelReply:
		reply, err := wire.DecodeTunnelReply(body)
		if err == nil {
			err = checkReply(req, reply)
		}
		return reply, err
	case wire.TypeReject:
		r, err := wire.DecodeReject(body)
		if err == nil {
			err = &RefusedError{Reason: r.Reason, RetryAfter: time.Duration(min(r.RetryAfter, uint64(retryMost.Milliseconds()))) * time.Millisecond}
		}
		return wire.TunnelReply{}, err
	}
	return wire.TunnelReply{}, fmt.Errorf("type %d as an answer: %w", t, wire.ErrMalformed)
}

// checkReply refuses what would confuse the gateway's own addresses and routes.
func checkReply(req wire.TunnelRequest, r wire.TunnelReply) error {
	if len(r.Tunnels) != len(req.Uplinks) {
		return fmt.Errorf("%d tunnels for %d uplinks: %w", len(r.Tunnels), len(req.Uplinks), wire.ErrMalformed)
	}
	if r.Key == (wire.TunnelKey{}) {
		return errors.New("the collector has no key")
	}
	var seen []netip.Addr
	for i, l := range r.Tunnels {
		local, remote := l.Local.Addr(), l.Remote
		if !local.Is4() || !remote.Is4() || l.Local.Bits() != 32 || !local.IsGlobalUnicast() || !remote.IsGlobalUnicast() {
			return fmt.Errorf("uplink %s: %s to %s are no addresses for a tunnel", req.Uplinks[i].Name, l.Local, remote)
		}
		if local == remote || slices.Contains(seen, local) || slices.Contains(seen, remote) {
			return fmt.Errorf("uplink %s: %s to %s, of which one is used twice", req.Uplinks[i].Name, l.Local, remote)
		}
		seen = append(seen, local, remote)
	}
	return nil
}
