package collector

import (
	"errors"
	"fmt"
	"time"

	"sluice/uplink"
	"sluice/uplink/wire"
)

// tunnelRetry is when a gateway should ask again for a tunnel that it was
// refused: the reasons for that need somebody to come.
const tunnelRetry = 10 * time.Minute

// Tunnels gives gateways the addresses of tunnels.
type Tunnels interface {
	// Lease returns when the tunnels of the request are durable and their peers
	// known to the kernel, or why they are not. It may be called for several
	// gateways at once.
	Lease(gateway string, req wire.TunnelRequest) (wire.TunnelReply, error)
}

// lease answers a request for tunnels, the only message of its carrier.
func (c *Collector) lease(carrier uplink.Carrier, body []byte) (refused *wire.Reject, err error) {
	refuse := func(code wire.Code, err error) (*wire.Reject, error) {
		return &wire.Reject{Code: code, Reason: err.Error(), RetryAfter: uint64(tunnelRetry.Milliseconds())}, err
	}
	req, err := wire.DecodeTunnelRequest(body)
	switch {
	case err != nil:
		return refuse(wire.CodeProtocol, err)
	case req.Gateway != carrier.Peer():
		return refuse(wire.CodeIdentity, errIdentity(req.Gateway, carrier.Peer()))
	case c.opt.Tunnels == nil:
		return refuse(wire.CodeTunnel, errors.New("this collector has no tunnels: its log says why, or its configuration turns them off"))
	}
	reply, err := c.opt.Tunnels.Lease(req.Gateway, req)
	if err != nil {
		return refuse(wire.CodeTunnel, fmt.Errorf("tunnel: %w", err))
	}
	if err := carrier.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return nil, err
	}
	if _, err := carrier.Write(wire.AppendTunnelReply(nil, reply)); err != nil {
		return nil, fmt.Errorf("send tunnel reply: %w", err)
	}
	c.opt.Logger.Info("tunnels leased", "gateway", req.Gateway, "remote", carrier.RemoteAddr().String(), "tunnels", len(reply.Tunnels))
	return nil, nil
}

func errIdentity(says, is string) error {
	return fmt.Errorf("gateway says it is %q, but its certificate is for %q: make the two names equal", says, is)
}
